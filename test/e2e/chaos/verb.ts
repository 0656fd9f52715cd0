/** What is done to an agent in a round, and how long that takes about. */
import { createHash } from "node:crypto";
import { MIB, PerdureError } from "@perdure/protocol";
import type { Perdure } from "@perdure/sdk";
import { until, type DaemonUnderTest } from "../daemon-under-test.ts";
import { crash } from "../host-view.ts";
import type { Subject } from "./witness.ts";

export interface Call {
  readonly under: DaemonUnderTest;
  /** A client that is not closed when the daemon ends. */
  readonly caller: Perdure;
  readonly subject: Subject;
  readonly signal: AbortSignal;
  /** Names of this round alone begin so. */
  readonly prefix: string;
  /** A checkpoint of the subject, for the verbs that need one. */
  readonly cut: string;
  /** Of an agent, in the clear. */
  readonly exported: Uint8Array;
}

export interface Verb {
  /** On a host like the one that the seeds were drawn on. */
  readonly usualMs: number;
  /** Draws of it among all; default 1. */
  readonly share?: number;
  /** Undisturbed. */
  readonly before?: (call: Call) => Promise<unknown>;
  /** The id of the checkpoint that was answered, where that is the agent's newest. */
  readonly run: (call: Call) => Promise<string | null>;
  /** It leads to the call's cut. */
  readonly restores?: true;
  /** It ends the VM without keeping its memory. */
  readonly loses?: true;
  /** Machines with a disk of the agent are made beside its own. */
  readonly besides?: true;
}

const COPY_BYTES = 8 * MIB;
const content = Buffer.alloc(COPY_BYTES, "what is copied ");

export const verbs = {
  sleep: {
    usualMs: 350,
    share: 3,
    run: async ({ caller, subject, signal }) => (await caller.sleep(subject.name, { signal })).head,
  },
  wake: {
    usualMs: 500,
    share: 4,
    before: ({ under, subject }) => under.client.sleep(subject.name),
    run: ({ caller, subject, signal }) => nothing(caller.wake(subject.name, { signal })),
  },
  checkpoint: {
    usualMs: 400,
    share: 3,
    run: async ({ caller, subject, signal, prefix }) =>
      (await caller.checkpoint(subject.name, { name: `${prefix}-kept`, signal })).id,
  },
  restore: {
    usualMs: 800,
    share: 3,
    restores: true,
    besides: true,
    run: ({ caller, subject, signal, cut }) =>
      nothing(caller.restore(subject.name, cut, { signal })),
  },
  "restore-hot": {
    usualMs: 1_000,
    share: 2,
    restores: true,
    besides: true,
    run: async ({ caller, subject, signal, cut }) => {
      await caller.hot(subject.name, { checkpoint: cut, use: "restore", count: 1 }, { signal });
      return nothing(caller.restore(subject.name, cut, { signal }));
    },
  },
  hot: {
    usualMs: 700,
    besides: true,
    run: async ({ caller, subject, signal, cut }) => {
      await caller.hot(subject.name, { checkpoint: cut, count: 2 }, { signal });
      return null;
    },
  },
  fork: {
    usualMs: 700,
    share: 3,
    besides: true,
    run: ({ caller, subject, signal, prefix }) =>
      nothing(caller.fork(subject.name, `${prefix}-fork`, { signal })),
  },
  "fork-three": {
    usualMs: 1_000,
    besides: true,
    run: ({ caller, subject, signal, prefix, cut }) => {
      const names = [1, 2, 3].map((each) => `${prefix}-fork-${each}`);
      return nothing(caller.forkAll(subject.name, names, { checkpoint: cut, signal }));
    },
  },
  exec: {
    usualMs: 1_200,
    run: async ({ caller, subject, signal }) => {
      const line = "for i in $(seq 40); do echo $i; sleep 0.02; done; head -c 2000000 /dev/zero";
      const argv = ["/bin/sh", "-c", line];
      const { exitCode, stdout } = await caller.run(subject.name, argv, {}, { signal });
      if (exitCode === 0) sameBytes(stdout.subarray(111), new Uint8Array(2_000_000));
      return null;
    },
  },
  terminal: {
    usualMs: 900,
    run: async ({ caller, subject, signal }) => {
      const argv = [
        "/bin/sh",
        "-c",
        "cat & for i in 1 2 3 4 5; do echo $i; sleep 0.1; done; kill %1",
      ];
      await using terminal = await caller.terminal(subject.name, argv, { signal });
      await terminal.write("typed\n");
      for await (const event of terminal) if (event.type === "exit") break;
      return null;
    },
  },
  "copy-in": {
    usualMs: 500,
    run: ({ caller, subject, signal }) =>
      nothing(caller.writeFile(subject.name, "/home/user/copied", content, { signal })),
  },
  "copy-out": {
    usualMs: 300,
    before: ({ under, subject }) =>
      under.client.writeFile(subject.name, "/home/user/to-copy", content),
    run: async ({ caller, subject, signal }) => {
      const file = await caller.readFile(subject.name, "/home/user/to-copy", { signal });
      sameBytes(await file.collect(), content);
      return null;
    },
  },
  watch: {
    usualMs: 1_500,
    run: async ({ caller, subject, signal }) => {
      const ending = AbortSignal.timeout(1_500);
      const both = AbortSignal.any([signal, ending]);
      try {
        const events = caller.watch(subject.name, "/home/user", { signal: both });
        for await (const event of events) if (event.type === "missed") break;
      } catch (error) {
        if (!ending.aborted) throw error;
      }
      return null;
    },
  },
  export: {
    usualMs: 2_500,
    run: async ({ caller, subject, signal, cut }) => {
      const options = { checkpoint: cut, inClear: true, withoutImage: true, signal };
      const { bytes } = await caller.export(subject.name, options);
      await Array.fromAsync(bytes);
      return null;
    },
  },
  import: {
    usualMs: 900,
    share: 2,
    run: async ({ caller, signal, prefix, exported }) => {
      await caller.import(`${prefix}-import`, exported, { signal });
      return nothing(caller.wake(`${prefix}-import`, { signal }));
    },
  },
  stop: {
    usualMs: 1_500,
    loses: true,
    run: ({ caller, subject, signal }) => nothing(caller.stop(subject.name, { signal })),
  },
  start: {
    usualMs: 5_000,
    loses: true,
    before: ({ under, subject }) => under.client.stop(subject.name),
    run: ({ caller, subject, signal }) => nothing(caller.start(subject.name, { signal })),
  },
  "recover-memory": {
    usualMs: 400,
    share: 2,
    loses: true,
    before: async (call) => {
      await call.under.client.checkpoint(call.subject.name);
      await crashed(call);
    },
    run: ({ caller, subject, signal }) =>
      nothing(caller.recover(subject.name, { from: "checkpoint", signal })),
  },
  "recover-disk": {
    usualMs: 5_000,
    loses: true,
    before: (call) => crashed(call),
    run: ({ caller, subject, signal }) =>
      nothing(caller.recover(subject.name, { from: "disk", signal })),
  },
  recreate: {
    usualMs: 900,
    loses: true,
    run: async ({ caller, subject, signal }) => {
      await caller.remove(subject.name, { signal });
      return nothing(caller.create({ name: subject.name }, { signal }));
    },
  },
  resize: {
    usualMs: 7_000,
    loses: true,
    run: async ({ caller, subject, signal }) => {
      const { shape } = await caller.show(subject.name, { signal });
      const memoryBytes = shape.memoryBytes === 512 * MIB ? 640 * MIB : 512 * MIB;
      await caller.configure(subject.name, { memoryBytes }, { signal });
      await caller.stop(subject.name, { signal });
      return nothing(caller.start(subject.name, { signal }));
    },
  },
  grow: {
    usualMs: 400,
    run: async ({ caller, subject, signal }) => {
      const { shape } = await caller.show(subject.name, { signal });
      const diskBytes = shape.diskBytes + 64 * MIB;
      return nothing(caller.configure(subject.name, { diskBytes }, { signal }));
    },
  },
  verify: {
    usualMs: 600,
    run: async ({ caller, subject, signal }) => {
      for await (const event of caller.verify(subject.name, { signal })) {
        if (event.type === "checkpoint" && event.verdict === "damaged") {
          throw new Error(`Damaged: ${JSON.stringify(event)}`);
        }
      }
      return null;
    },
  },
  gc: {
    usualMs: 40,
    run: ({ caller, subject, signal }) => nothing(caller.gc(subject.name, { signal })),
  },
} as const satisfies Readonly<Record<string, Verb>>;

export type VerbName = keyof typeof verbs;

async function crashed({ under, subject: { id, name } }: Call): Promise<void> {
  await crash(under, id);
  await until(
    "the crash to be seen",
    async () => (await under.client.show(name)).state === "failed",
  );
}

async function nothing(work: Promise<unknown>): Promise<null> {
  await work;
  return null;
}

function sameBytes(got: Uint8Array, wanted: Uint8Array): void {
  const digest = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
  if (got.length === wanted.length && digest(got) === digest(wanted)) return;
  throw new Error(`Other bytes: ${got.length} of ${wanted.length}`);
}

/** Those that no call may end in: a defect, or damage that nobody did. */
const defects: readonly string[] = [
  "internal",
  "store_failed",
  "not_found",
  "bad_request",
  "checkpoint_digest_mismatch",
  "checkpoint_signature",
  "export_invalid",
  "guest_protocol_violation",
];

/** @throws where a call ended in something that no fault explains */
export function assertTyped(error: unknown): void {
  if (error instanceof PerdureError && !defects.includes(error.code)) return;
  throw new Error("A call ended in an error that no fault explains", { cause: error });
}
