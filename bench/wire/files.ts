/** 100 MiB into an agent and out of it, by E2B's SDK and by our file API, in turns. What comes back is held against its digest. */
import { createHash, randomBytes } from "node:crypto";
import type { Sandbox } from "e2b";
import { found, judged, metric, type Findings } from "../benchmark.ts";
import type { Field } from "../ours/field.ts";
import { ratioOfMedians } from "../statistic.ts";
import { agentOf, openWire, timed, type Wire } from "./client.ts";

const MIB = 1024 * 1024;
const SIZE = 100 * MIB;
const PATH = "/home/user/hundred";

const promise = (name: string) =>
  ({
    name,
    what: "100 MiB through the E2B wire, time over our own file API",
    relation: "≤",
    limit: 2.0,
  }) as const;

export async function compareFiles(field: Field): Promise<Findings> {
  const { context } = field;
  const wire = await openWire(field);
  const sandbox = await wire.create();
  const bytes = randomBytes(SIZE);
  const digest = digestOf([bytes]);
  const times: Record<"up" | "upNative" | "down" | "downNative", number[]> = {
    ...{ up: [], upNative: [], down: [], downNative: [] },
  };
  await wire.daemon.quiet(2);
  for (let i = 0; i < context.runs; i++) {
    times.up.push(await timed(() => sandbox.files.write(PATH, new Blob([bytes]))));
    times.down.push(await timed(() => back(sandbox, digest)));
    times.upNative.push(await timed(() => ownUpload(wire, sandbox, bytes)));
    times.downNative.push(await timed(() => ownDownload(wire, sandbox, digest)));
    const last = Object.entries(times).map(([name, all]) => `${name} ${all.at(-1)?.toFixed(0)} ms`);
    context.progress(`files ${i + 1}/${context.runs}: ${last.join(", ")}`);
  }
  const [up, down] = [
    ratioOfMedians(times.up, times.upNative),
    ratioOfMedians(times.down, times.downNative),
  ];
  return found({
    metrics: {
      upload: metric("ms", times.up),
      upload_native: metric("ms", times.upNative),
      download: metric("ms", times.down),
      download_native: metric("ms", times.downNative),
    },
    ratios: { upload_vs_native: up, download_vs_native: down },
    bars: [judged(promise("upload_vs_native"), up), judged(promise("download_vs_native"), down)],
  });
}

async function ownUpload({ daemon }: Wire, sandbox: Sandbox, bytes: Uint8Array): Promise<void> {
  await daemon.client.writeFile(agentOf(sandbox), PATH, bytes, { user: "user" });
}

async function back(sandbox: Sandbox, digest: string): Promise<void> {
  const stream = await sandbox.files.read(PATH, { format: "stream" });
  await hold(stream, digest);
}

async function ownDownload({ daemon }: Wire, sandbox: Sandbox, digest: string): Promise<void> {
  const { bytes } = await daemon.client.readFile(agentOf(sandbox), PATH, { user: "user" });
  await hold(bytes, digest);
}

async function hold(pieces: AsyncIterable<Uint8Array>, digest: string): Promise<void> {
  if (digestOf(await Array.fromAsync(pieces)) !== digest) throw new Error("It is another file");
}

function digestOf(pieces: Iterable<Uint8Array>): string {
  const hash = createHash("sha256");
  for (const piece of pieces) hash.update(piece);
  return hash.digest("hex");
}
