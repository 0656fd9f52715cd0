/** Short ways to say what tests of the core say all the time. */
import type { LetOut, WakeReport } from "@perdure/protocol";
import type { Command } from "../../packages/daemon/src/core/command.ts";
import type { Export } from "../../packages/daemon/src/core/transfer-command.ts";
import { shape, type World } from "./world.ts";

export const create = (name: string, onCrash: "checkpoint" | "disk" | "ask" = "checkpoint") =>
  ({ kind: "create", tenant: "default", name, image: "base", shape, onCrash }) as const;

export const hot = (agent: string, of: string, use: "fork" | "restore" = "fork", count = 1) =>
  ({ kind: "hot", tenant: "default", agent, checkpoint: of, use, count }) as const;

export const hold = (agent: string, forMs: number, reason = "") =>
  ({ kind: "hold", tenant: "default", agent, forMs, reason }) as const;

export const wakeAt = (agent: string, wakeAtMs: number | null) =>
  ({ kind: "configure", tenant: "default", agent, wakeAtMs }) as const;

export const resize = (
  agent: string,
  size: { memoryBytes?: number; cpus?: number; diskBytes?: number },
) => ({ kind: "configure", tenant: "default", agent, ...size }) as const;

export const quarantine = (agent: string, reason = "a test") =>
  ({ kind: "quarantine", tenant: "default", agent, reason }) as const;

type Plain =
  "sleep" | "wake" | "checkpoint" | "gc" | "stop" | "start" | "recover" | "release" | "remove";

export function verb<K extends Plain>(kind: K, agent: string): Command & { kind: K } {
  return { kind, tenant: "default", agent } as Command & { kind: K };
}

export const recover = (agent: string, from: "checkpoint" | "disk") =>
  ({ ...verb("recover", agent), from }) as const;

export const restore = (agent: string, to: string) =>
  ({ kind: "restore", tenant: "default", agent, checkpoint: to }) as const;

export const fork = (agent: string, name: string, from?: string) =>
  ({
    kind: "fork",
    tenant: "default",
    agent,
    names: [name],
    ...(from === undefined ? {} : { checkpoint: from }),
  }) as const;

export const drop = (agent: string, dropped: string) =>
  ({ kind: "drop", tenant: "default", agent, checkpoint: dropped }) as const;

export const checkpoint = (agent: string, name: string) =>
  ({ ...verb("checkpoint", agent), name }) as const;

export const exec = (agent: string, ...argv: string[]) =>
  ({ kind: "exec", tenant: "default", agent, argv, env: {}, user: "user", stdin: false }) as const;

/** Checkpoints that fail leave layers behind, and the next sleep cannot merge them: the chain grows. */
export async function growChain(world: World, agent: string, by = 6): Promise<void> {
  for (let i = 0; i < by; i++) {
    await count(world, agent, 1);
    world.faults.fail("machine.addLayer");
    await world.execute(checkpoint(agent, `failed-${i}`)).catch(() => undefined);
    world.faults.clear();
  }
}

/** Runs a short program inside and gives its output and exit code. */
export async function outputOf(
  world: World,
  agent: string,
  ...argv: string[]
): Promise<{ text: string; exitCode: number | null }> {
  const { process } = await world.execute(exec(agent, ...argv));
  const target = { tenant: "default", agent, process };
  const pieces = await world.run(world.engine.output(target, 0, new AbortController().signal));
  return world.run(
    (async () => {
      let text = "";
      for await (const piece of pieces) {
        if (piece.type === "output") text += Buffer.from(piece.bytes).toString();
        if (piece.type === "exit") return { text, exitCode: piece.exitCode };
      }
      throw new Error("The output ended without an exit");
    })(),
  );
}

/** Adds to the counter inside, in memory and on disk; what it is now. */
export async function count(world: World, agent: string, by = 1): Promise<number> {
  return Number((await outputOf(world, agent, "count", String(by))).text);
}

/** Every verb that ends with a let-out agent has a report. */
export function reportOf({ report }: LetOut): WakeReport {
  if (report === null) throw new Error("There is no report");
  return report;
}

/** The file of an agent that sleeps or is stopped, or of a checkpoint. */
export async function exported(
  world: World,
  agent: string,
  wanted: Partial<Pick<Export, "checkpoint" | "all" | "withImage">> = {},
): Promise<Uint8Array> {
  const request = { tenant: "default", agent, all: false, withImage: true, passphrase: null };
  const file = await world.run(world.engine.export({ ...request, ...wanted }));
  return Buffer.concat(await world.run(Array.fromAsync(file.bytes)));
}

/** As an upload comes. */
export async function* inPieces(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += 1000) {
    yield await Promise.resolve(bytes.subarray(at, at + 1000));
  }
}
