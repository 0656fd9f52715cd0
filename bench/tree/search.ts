/**
 * A search tree of 200 nodes in one agent: each node is a checkpoint with a name, reached by a restore to
 * its parent and a step that writes a file. What the whole tree has on the disk, against what is left
 * after all but the 20 best were dropped.
 *
 * The tree is drawn from a fixed seed: mostly the newest node is expanded, else an earlier one; a node's
 * score is its parent's and a random step, so that good ones are near each other. Kept nodes are restored
 * at the end and must still hold their file and not another's.
 */
import { found, judged, metric, type Findings } from "../benchmark.ts";
import { diskUsage } from "../disk-usage.ts";
import { run } from "../inside.ts";
import { Agent } from "../ours/agent.ts";
import { startDaemon, storedBytes, type Field } from "../ours/field.ts";

const NODES = 200;
const KEPT = 20;
const DEEPER = 0.6;
const CHECKED = 5;
const SEED = 20_261_129;

const gcLimit = {
  name: "gc_remaining",
  what: "storage after GC of a 200-node search tree with 20 nodes kept, over keep-all",
  relation: "≤",
  limit: 0.54,
} as const;

export interface Node {
  readonly name: string;
  /** Null: the root. */
  readonly parent: Node | null;
  readonly score: number;
}

export async function measureSearch(field: Field): Promise<Findings> {
  const { context, shape } = field;
  const daemon = await startDaemon(field, { spares: 1 });
  const before = await storedBytes(daemon);
  const agent = await Agent.create(daemon, shape);
  const nodes = drawTree(NODES, SEED);
  const steps: number[] = [];
  let at: Node | null = null;
  for (const node of nodes) {
    const begin = performance.now();
    if (node.parent !== at && node.parent !== null) await agent.restore(node.parent.name);
    await run(agent, writeFile(node));
    await agent.checkpoint(node.name);
    at = node;
    steps.push(performance.now() - begin);
    if (steps.length % 20 === 0) {
      context.progress(
        `tree ${steps.length}/${nodes.length}: ${JSON.stringify(await inside(agent))}`,
      );
    }
  }
  await agent.sleep();
  await daemon.quiet(1);
  const [all, allInside] = [(await storedBytes(daemon)) - before, await inside(agent)];
  const kept = best(nodes, KEPT);
  for (const node of nodes) if (!kept.includes(node)) await agent.drop(node.name);
  const [left, leftInside] = [(await storedBytes(daemon)) - before, await inside(agent)];
  for (const node of kept.slice(0, CHECKED)) {
    await agent.restore(node.name);
    await run(agent, holdsPath(node));
  }
  await agent.remove();
  return found({
    metrics: {
      tree_step: metric("ms", steps),
      tree_all: metric("bytes", [all]),
      tree_all_per_node: metric("bytes", [all / nodes.length]),
      ...parts("tree_all", allInside),
      tree_left: metric("bytes", [left]),
      ...parts("tree_left", leftInside),
    },
    ratios: { gc_remaining: left / all },
    bars: [judged(gcLimit, left / all)],
  });
}

/** The root and what grew from it, in the order of growth. */
export function drawTree(count: number, seed: number): Node[] {
  const random = generator(seed);
  const root: Node = { name: "node-0", parent: null, score: 0 };
  const nodes = [root];
  while (nodes.length < count) {
    const newest = nodes.at(-1) ?? root;
    const any = nodes[Math.floor(random() * nodes.length)] ?? root;
    const parent = random() < DEEPER ? newest : any;
    nodes.push({ name: `node-${nodes.length}`, parent, score: parent.score + random() - 0.5 });
  }
  return nodes;
}

export function best(nodes: readonly Node[], count: number): Node[] {
  return nodes.toSorted((a, b) => b.score - a.score).slice(0, count);
}

/** Numbers from 0 to 1, the same for the same seed (Lehmer). */
function generator(seed: number): () => number {
  let state = seed % 2_147_483_647;
  return () => {
    state = (state * 48_271) % 2_147_483_647;
    return state / 2_147_483_647;
  };
}

const folder = "/home/user/search";

/** One step: 64 KiB that no other node has, and the path to here in its name. */
function writeFile({ name }: Node): string[] {
  const script = `mkdir -p ${folder} && head -c 65536 /dev/urandom > ${folder}/${name}`;
  return ["sh", "-c", script];
}

/** The agent has the files of this node and of all above it, and no other. */
function holdsPath(node: Node): string[] {
  const path: string[] = [];
  for (let each: Node | null = node; each !== null; each = each.parent) path.push(each.name);
  const wanted = path.toSorted().join("\\n");
  return ["sh", "-c", `test "$(ls ${folder} | LC_ALL=C sort)" = "$(printf '${wanted}')"`];
}

type Inside = Readonly<Record<"packs" | "layers" | "checkpoints", number>>;

async function inside({ folder }: Agent): Promise<Inside> {
  const [packs, layers, checkpoints] = await Promise.all(
    ["packs", "layers", "checkpoints"].map((name) => diskUsage(`${folder}/${name}`)),
  );
  return { packs: packs ?? 0, layers: layers ?? 0, checkpoints: checkpoints ?? 0 };
}

function parts(name: string, bytes: Inside): Record<string, ReturnType<typeof metric>> {
  return Object.fromEntries(
    Object.entries(bytes).map(([part, value]) => [`${name}.${part}`, metric("bytes", [value])]),
  );
}
