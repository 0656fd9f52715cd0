/**
 * For tests of the API, the SDK and the CLI: `Commands` over plain maps, without a VM. Programs are
 * child processes of the test; files are bytes in a map. Not an engine: only what those tests look at.
 */
import { closedEgress, makeId, PerdureError } from "@perdure/protocol";
import type {
  AgentState,
  AgentView,
  CheckpointView,
  ConnectionView,
  Digest,
  EgressPolicy,
  EgressView,
  EndWish,
  VerifyEvent,
  WakeReport,
} from "@perdure/protocol";
import type {
  Command,
  Commands,
  Create,
  ResultOf,
  Results,
  Target,
} from "../../../packages/daemon/src/core/command.ts";
import type { GuestStats } from "../../../packages/daemon/src/core/ports/guest-link.ts";
import { firstPage } from "../../../packages/daemon/src/core/page.ts";
import { inChunks, FakeFiles } from "./fake-files.ts";
import { connectHere } from "./fake-connection.ts";
import { startFakeProcess } from "./fake-process.ts";
import type { FakeProcess } from "./fake-process.ts";

export interface FakeCommands extends Commands {
  /** Everything that was executed, in order. */
  readonly executed: Command[];
  /** What an agent has as files. @throws `agent_not_found` */
  filesOf(agent: string): FakeFiles;
  /** Thrown by the next command instead of doing it. */
  failNext(error: Error): void;
  /** Ends every child process. */
  dispose(): void;
  /** Exports that nobody has closed. */
  readonly exportsOpen: { count: number };
}

interface FakeAgent {
  view: AgentView;
  readonly checkpoints: CheckpointView[];
  readonly processes: Map<number, FakeProcess>;
  readonly files: FakeFiles;
  egress: EgressPolicy;
  readonly ports: Map<number, { public: boolean; token: string }>;
  readonly env: Readonly<Record<string, string>>;
}

const atMs = 1_700_000_000_000;

export function createFakeCommands(): FakeCommands {
  const agents = new Map<string, FakeAgent>();
  const executed: Command[] = [];
  let failure: Error | undefined;
  let serial = 0;
  const exportsOpen = { count: 0 };
  const id = <P extends "ag" | "cp">(prefix: P) =>
    makeId(prefix, atMs, new Uint8Array([0, 0, 0, 0, 0, 0, 0, 0, ++serial >> 8, serial & 255]));

  const find = ({ agent }: Target): FakeAgent => {
    const found = agents.get(agent) ?? [...agents.values()].find(({ view }) => view.id === agent);
    if (found !== undefined) return found;
    throw new PerdureError("agent_not_found", `Cannot find agent "${agent}"`, {
      hint: '"perdure list" shows those that exist',
    });
  };
  const processOf = (target: Target & { process: number }): FakeProcess => {
    const found = find(target).processes.get(target.process);
    if (found !== undefined) return found;
    throw new PerdureError("process_not_found", `Process ${target.process} is not known`);
  };
  const move = (target: Target, state: AgentState): AgentView => {
    const agent = find(target);
    const wakes = state === "awake" && agent.view.state !== "awake" ? 1 : 0;
    agent.view = { ...agent.view, state, generation: agent.view.generation + wakes };
    return agent.view;
  };
  /** The agent, woken where it sleeps and may be. */
  const awake = (target: Target & { readonly wakes?: boolean }): FakeAgent => {
    const agent = find(target);
    if (agent.view.state === "asleep") {
      if (target.wakes === false) throw new PerdureError("agent_state", "The agent is asleep");
      move(target, "awake");
    }
    return agent;
  };
  const letOut = (target: Target): Results["wake"] => {
    const agent = move(target, "awake");
    return { agent, report: sampleReport(agent) };
  };

  const perform: { [K in Command["kind"]]: (c: Command & { kind: K }) => Promise<Results[K]> } = {
    create: async (command) => {
      await Promise.resolve();
      if (agents.has(command.name)) {
        throw new PerdureError("agent_exists", `Cannot create agent "${command.name}": it exists`);
      }
      const view = sampleView(id("ag"), command);
      agents.set(command.name, {
        view,
        checkpoints: [],
        processes: new Map(),
        files: new FakeFiles(),
        ports: new Map(),
        env: command.env ?? {},
        egress: command.egress ?? closedEgress,
      });
      return view;
    },
    configure: async (command) => {
      await Promise.resolve();
      const agent = find(command);
      const {
        kind: _,
        tenant: __,
        agent: ___,
        memoryBytes,
        cpus,
        diskBytes,
        end,
        env: ____,
        ...settings
      } = command;
      const { shape } = agent.view;
      const pending = {
        ...(memoryBytes === undefined ? {} : { memoryBytes }),
        ...(cpus === undefined ? {} : { cpus }),
      };
      agent.view = {
        ...agent.view,
        ...set(settings),
        ...(end === undefined ? {} : { end: sampleEnd(end) }),
        shape: { ...shape, diskBytes: diskBytes ?? shape.diskBytes },
        pending: Object.keys(pending).length === 0 ? null : pending,
      };
      return agent.view;
    },
    hold: async ({ forMs, reason, ...target }) => {
      await Promise.resolve();
      const agent = find(target);
      move(target, "awake");
      const hold = { id: agent.view.holds.length + 1, reason, untilMs: Date.now() + forMs };
      agent.view = { ...agent.view, holds: [...agent.view.holds, hold] };
      return hold;
    },
    "end-hold": async ({ hold, ...target }) => {
      await Promise.resolve();
      const agent = find(target);
      const { name, holds } = agent.view;
      if (!holds.some(({ id }) => id === hold)) {
        throw new PerdureError("hold_not_found", `Agent "${name}" has no hold ${hold}`);
      }
      agent.view = { ...agent.view, holds: holds.filter(({ id }) => id !== hold) };
      return agent.view;
    },
    quarantine: (command) => Promise.resolve().then(() => move(command, "quarantined")),
    release: (command) => Promise.resolve().then(() => move(command, "asleep")),
    exec: async (command) => {
      const agent = find(command);
      move(command, "awake");
      const number = agent.processes.size + 1;
      const started = await startFakeProcess(number, command);
      agent.processes.set(number, started);
      return { process: number, pid: started.view().pid, generation: agent.view.generation };
    },
    sleep: async (command) => {
      await Promise.resolve();
      const { processes, files } = find(command);
      for (const running of processes.values()) running.interrupt("sleep");
      files.tell({ type: "interrupted", reason: "sleep" });
      return move(command, "asleep");
    },
    wake: (command) => Promise.resolve().then(() => letOut(command)),
    stop: (command) => Promise.resolve().then(() => move(command, "stopped")),
    start: (command) => Promise.resolve().then(() => letOut(command)),
    recover: (command) => Promise.resolve().then(() => letOut(command)),
    remove: async (command) => {
      await Promise.resolve();
      const view = move(command, "removed");
      agents.delete(view.name);
      return view;
    },
    checkpoint: async (command) => {
      await Promise.resolve();
      const { checkpoints, view } = find(command);
      const checkpoint = sampleCheckpointView(id("cp"), view.generation, command.name ?? null);
      checkpoints.push(checkpoint);
      return checkpoint;
    },
    restore: (command) => Promise.resolve().then(() => letOut(command)),
    fork: async ({ names, egress, ...target }) => {
      const { view } = find(target);
      const { image, shape, onCrash, tenant, idleAfterMs, checkpointEveryMs } = view;
      const settings = { onCrash, idleAfterMs, checkpointEveryMs };
      const forks: Results["wake"][] = [];
      for (const name of names) {
        const forked = {
          kind: "create",
          tenant,
          name,
          image: image.name,
          shape,
          egress,
          ...settings,
        };
        await perform.create(forked as Command & { kind: "create" });
        forks.push(letOut({ tenant, agent: name }));
      }
      return forks;
    },
    hot: async ({ checkpoint, use, count, ...target }) => {
      await Promise.resolve();
      const { checkpoints } = find(target);
      const found = checkpoints.find(
        ({ id: one, name }) => one === checkpoint || name === checkpoint,
      );
      if (found === undefined)
        throw new PerdureError("checkpoint_not_found", "There is no such checkpoint");
      return { checkpoint: found.id, use, ready: count };
    },
    drop: async (command) => {
      await Promise.resolve();
      const { checkpoints, view } = find(command);
      const at = checkpoints.findIndex(
        ({ id, name }) => id === command.checkpoint || name === command.checkpoint,
      );
      if (at < 0) throw new PerdureError("checkpoint_not_found", "There is no such checkpoint");
      checkpoints.splice(at, 1);
      return view;
    },
    signal: async (command) => {
      await Promise.resolve();
      processOf(command).signal(command.signal);
      return undefined;
    },
    resize: async (command) => {
      await Promise.resolve();
      processOf(command).resize(command);
      return undefined;
    },
    "set-port": async (command) => {
      await Promise.resolve();
      const agent = find(command);
      const { port, public: isPublic } = command;
      const facts = agent.ports.get(port) ?? { public: false, token: `pt_${++serial}` };
      const next = {
        public: isPublic ?? facts.public,
        token: command.renewToken === true ? `pt_${++serial}` : facts.token,
      };
      agent.ports.set(port, next);
      return { agent: agent.view.id, port, ...next };
    },
    "set-egress": async (command) => {
      await Promise.resolve();
      const agent = find(command);
      const { rules, otherwise } = command.policy;
      agent.egress = command.policy;
      agent.view = { ...agent.view, egress: { rules: rules.length, otherwise } };
      return egressOf(agent);
    },
    gc: async (command) => {
      await Promise.resolve();
      const { id: agent, name, storedBytes } = find(command).view;
      const layers = { before: 3, after: 2 };
      return { agent, name, freedBytes: 4096, storedBytes, layers, notice: null };
    },
    makeFolder: async (command) => {
      await Promise.resolve();
      awake(command).files.makeFolder(command);
      return undefined;
    },
    movePath: async (command) => {
      await Promise.resolve();
      awake(command).files.move(command);
      return undefined;
    },
    removePath: async (command) => {
      await Promise.resolve();
      awake(command).files.remove(command);
      return undefined;
    },
  };

  return {
    executed,
    filesOf: (agent) => find({ tenant: "default", agent }).files,
    exportsOpen,
    failNext: (error) => {
      failure = error;
    },
    dispose: () => {
      for (const agent of agents.values()) for (const p of agent.processes.values()) p.signal(9);
    },
    execute: async <C extends Command>(command: C): Promise<ResultOf<C>> => {
      executed.push(command);
      const thrown = failure;
      failure = undefined;
      if (thrown !== undefined) throw thrown;
      const act = perform[command.kind] as unknown as (command: C) => Promise<ResultOf<C>>;
      return act(command);
    },
    listByAge: async ({ label, order, after, limit }) => {
      await Promise.resolve();
      const views = [...agents.values()]
        .map(({ view }) => view)
        .filter(({ labels }) => Object.entries(label).every(([key, text]) => labels[key] === text))
        .sort((one, two) => (one.id < two.id ? -1 : 1));
      if (order === "newest-first") views.reverse();
      const isNext = ({ id }: AgentView): boolean =>
        after === null || (order === "newest-first" ? id < after : id > after);
      return views.filter(isNext).slice(0, limit);
    },
    environment: (target) => Promise.resolve().then(() => find(target).env),
    userOf: (target) => Promise.resolve().then(() => (find(target), "user")),
    usage: (target) => Promise.resolve().then(() => usageOf(awake({ ...target, wakes: false }))),
    findCheckpoint: async ({ checkpoint: wanted }) => {
      await Promise.resolve();
      for (const { view: agent, checkpoints } of agents.values()) {
        const checkpoint = checkpoints.find(({ id }) => id === wanted);
        if (checkpoint !== undefined) return { agent, checkpoint };
      }
      throw new PerdureError("checkpoint_not_found", `No checkpoint has the id "${wanted}"`);
    },
    list: async ({ prefix = "", after = "", state, label = {}, limit }) => {
      await Promise.resolve();
      const views = [...agents.values()]
        .map(({ view }) => view)
        .filter(({ name }) => name.startsWith(prefix) && name > after)
        .filter((view) => state === undefined || view.state === state)
        .filter(({ labels }) => Object.entries(label).every(([key, text]) => labels[key] === text))
        .sort((one, two) => (one.name < two.name ? -1 : 1));
      const page = views.slice(0, limit);
      return { agents: page, next: views.length > limit ? (page.at(-1)?.name ?? null) : null };
    },
    show: (target) => Promise.resolve().then(() => find(target).view),
    why: (target) =>
      Promise.resolve().then(() => ({
        state: find(target).view.state,
        sinceMs: atMs,
        reasons: [{ reason: "quiet", detail: "Nothing needs it", untilMs: atMs + 60_000 }],
        next: { what: "sleep" as const, atMs: atMs + 60_000 },
        ways: ["perdure sleep a1"],
      })),
    report: (target) => Promise.resolve().then(() => sampleReport(find(target).view)),
    checkpoints: async (query) => {
      await Promise.resolve();
      const all = find(query).checkpoints.map((view, i) => ({ view, place: i + 1 }));
      const { after = 0, limit = all.length } = query;
      const rest = all.filter(({ place }) => place > after);
      const { page, next } = firstPage(rest, limit, ({ place }) => place);
      return { checkpoints: page.map(({ view }) => view), next };
    },
    egress: async (target) => {
      await Promise.resolve();
      return egressOf(find(target));
    },
    connections: async (query) => {
      await Promise.resolve();
      find(query);
      const { after = 0, limit = sampleConnections.length } = query;
      const rest = sampleConnections.map((view, i) => ({ view, place: i + 1 })).slice(after);
      const { page, next } = firstPage(rest, limit, ({ place }) => place);
      return { connections: page.map(({ view }) => view), next };
    },
    verify: async (target, signal) => {
      await Promise.resolve();
      return verified(find(target).checkpoints, target.checkpoint, signal);
    },
    export: async (request) => {
      await Promise.resolve();
      const { view } = find(request);
      if (view.state === "awake" && request.checkpoint === undefined) {
        throw new PerdureError("agent_state", `Cannot export agent "${view.name}": it is awake`, {
          hint: `"perdure sleep ${view.name}" first`,
        });
      }
      const text = JSON.stringify({ agent: view, passphrase: request.passphrase });
      exportsOpen.count++;
      return {
        signer: "b".repeat(64) as Digest,
        bytes: inChunks(Buffer.from(text.padEnd(200_000))),
        close: () => {
          exportsOpen.count = 0;
          return Promise.resolve();
        },
      };
    },
    import: async ({ name, tenant, passphrase }, bytes) => {
      const chunks: Uint8Array[] = [];
      for await (const chunk of bytes) {
        chunks.push(chunk);
        // As the real one, which looks at the beginning before it goes on.
        if (chunks[0]?.[0] !== 0x7b) throw new PerdureError("export_invalid", "It is no export");
      }
      const file = JSON.parse(Buffer.concat(chunks).toString()) as {
        agent: AgentView;
        passphrase: string | null;
      };
      if (file.passphrase !== passphrase) {
        throw new PerdureError("export_passphrase", "The file does not open with this passphrase");
      }
      const { image, shape, onCrash } = file.agent;
      const command = { kind: "create", tenant, name, image: image.name, shape, onCrash } as const;
      await perform.create(command);
      const agent = move({ tenant, agent: name }, "asleep");
      return {
        agent,
        checkpoints: [{ ...sampleCheckpointView(id("cp"), 0, null), kind: "import" }],
        from: {
          agent: file.agent.id,
          name: file.agent.name,
          signer: "b".repeat(64) as Digest,
          exportedAtMs: atMs,
        },
      };
    },
    processes: (target) =>
      Promise.resolve().then(() => [...find(target).processes.values()].map((p) => p.view())),
    doctor: () =>
      Promise.resolve({
        ready: true,
        findings: [{ subject: "fake", verdict: "good", detail: "No VM is used", advice: null }],
      }),
    output: (target, offset, signal) =>
      Promise.resolve().then(() => {
        awake(target);
        return processOf(target).output(offset, signal);
      }),
    writeStdin: async (target, bytes, end) => processOf(target).writeStdin(bytes, end),
    connect: async (target) => {
      const { view } = awake(target);
      return connectHere(target.port, view.generation);
    },
    stat: (target) => Promise.resolve().then(() => awake(target).files.stat(target.path)),
    listFolder: (target) => Promise.resolve().then(() => awake(target).files.list(target.path)),
    readFile: (target) =>
      Promise.resolve().then(() => awake(target).files.read(target.path, target.range)),
    writeFile: (target, bytes) =>
      Promise.resolve().then(() => awake(target).files.write(target, bytes)),
    watch: (target, signal) =>
      Promise.resolve().then(() => awake(target).files.watch(target.path, signal)),
  };
}

/** A checkpoint is damaged where its name says so; one called `endless` is never read to its end. */
async function* verified(
  checkpoints: readonly CheckpointView[],
  wanted: string | undefined,
  signal: AbortSignal,
): AsyncGenerator<VerifyEvent> {
  const counts = { good: 0, damaged: 0, gone: 0 };
  for (const { id, name, kind } of checkpoints) {
    if (wanted !== undefined && id !== wanted && name !== wanted) continue;
    yield { type: "progress", checkpoint: id, readBytes: 1024, totalBytes: 4096 };
    if (name === "endless") await new Promise((_, end) => signal.addEventListener("abort", end));
    const verdict = name?.startsWith("damaged") === true ? "damaged" : "good";
    counts[verdict]++;
    const check = verdict === "good" ? null : "digest";
    const detail = verdict === "good" ? null : "page 7 does not have the digest in its page map";
    const part = { part: "pack", name: "pk_1", verdict, check, detail } as const;
    yield { type: "checkpoint", checkpoint: id, name, kind, verdict, parts: [part] };
  }
  yield { type: "end", ...counts };
}

function egressOf({ view, egress }: FakeAgent): EgressView {
  return {
    agent: view.id,
    ...egress,
    wayOut: view.state === "awake" ? "open" : null,
    connections: 0,
  };
}

/** Whatever agent: one that was carried, one that was denied. */
export const sampleConnections: readonly ConnectionView[] = [
  {
    id: makeId("cn", atMs, new Uint8Array(10)),
    generation: 1,
    atMs,
    endedAtMs: atMs + 50,
    name: "api.example.com",
    address: "192.0.2.1",
    port: 443,
    method: null,
    outcome: "carried",
    rule: 0,
    unmediated: true,
    outBytes: 512,
    inBytes: 4096,
    why: null,
  },
  {
    id: makeId("cn", atMs + 60, new Uint8Array(10)),
    generation: 1,
    atMs: atMs + 60,
    endedAtMs: atMs + 60,
    name: null,
    address: "169.254.169.254",
    port: 80,
    method: null,
    outcome: "denied",
    rule: null,
    unmediated: false,
    outBytes: 0,
    inBytes: 0,
    why: "No rule allows it",
  },
];

function sampleView(
  id: AgentView["id"],
  { name, tenant, image, shape, onCrash, idleAfterMs, checkpointEveryMs, ...owner }: Create,
): AgentView {
  const { egress = closedEgress } = owner;
  return {
    id,
    name,
    tenant,
    state: "awake",
    paused: null,
    generation: 1,
    image: { id: "a".repeat(64) as Digest, name: image },
    shape,
    pending: null,
    onCrash,
    idleAfterMs: idleAfterMs ?? null,
    checkpointEveryMs: checkpointEveryMs ?? null,
    holds: [],
    wakeAtMs: null,
    publicPorts: [],
    portsPublic: owner.portsPublic ?? false,
    egress: { rules: egress.rules.length, otherwise: egress.otherwise },
    waitDueMs: null,
    end: sampleEnd(owner.end ?? null),
    wakeOnTraffic: owner.wakeOnTraffic ?? true,
    labels: { ...owner.labels },
    head: null,
    storedBytes: 4096,
    failure: null,
    createdAtMs: atMs,
    changedAtMs: atMs,
  };
}

/** What is given. */
function set<T extends object>(settings: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  const given = Object.entries(settings).filter(([, value]) => value !== undefined);
  return Object.fromEntries(given) as { [K in keyof T]: Exclude<T[K], undefined> };
}

function sampleEnd(wish: EndWish | null): AgentView["end"] {
  if (wish === null) return null;
  return { atMs: Date.now() + wish.afterMs, afterMs: wish.afterMs, then: wish.then ?? "sleep" };
}

function usageOf({ processes }: FakeAgent): GuestStats {
  return {
    ...{ memTotalBytes: 2 ** 29, memAvailableBytes: 2 ** 28, anonBytes: 2 ** 26, shmemBytes: 0 },
    ...{ cachedBytes: 2 ** 27, buffersBytes: 0, slabBytes: 0, slabReclaimableBytes: 0 },
    ...{ cpuUsec: 1000, processes: processes.size, load1Milli: 10, diskWriteBytes: 0 },
    ...{ diskTotalBytes: 2 ** 33, diskFreeBytes: 2 ** 32 },
  };
}

function sampleCheckpointView(
  id: CheckpointView["id"],
  generation: number,
  name: string | null,
): CheckpointView {
  const facts = { parent: null, memory: true, frozen: true, disk: "clean", addedBytes: 1 } as const;
  const kind = name === null ? "periodic" : "named";
  return { id, kind, name, generation, createdAtMs: atMs, pauseMs: 20.5, ...facts };
}

function sampleReport(agent: AgentView): WakeReport {
  return {
    version: 1,
    agent: agent.id,
    name: agent.name,
    route: "wake",
    generation: agent.generation,
    previousGeneration: agent.generation - 1,
    verdict: "continue",
    startedAtMs: atMs,
    letOutAtMs: atMs + 85,
    awayMs: 3_600_000,
    clock: { skewMs: 0.4, boundMs: 1.2, roundTrips: 3 },
    entropyBytes: 64,
    cut: { checkpoint: null, kind: "sleep", atMs, memory: true, disk: "clean" },
    otherCut: null,
    checks: [{ check: "manifest", outcome: "passed", detail: "signed by this host" }],
    phases: { open: 12, load: 40, gate: 33 },
  };
}
