/** E2B's SDK and ours, both pointed at one daemon of the benchmark's. */
import { Sandbox, type SandboxOpts } from "e2b";
import { startDaemon, type Field } from "../ours/field.ts";
import type { Daemon } from "../ours/daemon.ts";

export interface Wire {
  readonly daemon: Daemon;
  /** For every call of E2B's SDK. */
  readonly connection: SandboxOpts & Readonly<Record<"apiKey" | "apiUrl" | "sandboxUrl", string>>;
  /** Sandboxes are removed with the daemon. */
  readonly create: () => Promise<Sandbox>;
}

/** Longer than any part takes. */
const TIMEOUT_MS = 4 * 60 * 60_000;

export async function openWire(field: Field): Promise<Wire> {
  const daemon = await startDaemon(field, { spares: 1, listen: "127.0.0.1:0" });
  const { url } = await daemon.client.health();
  if (url === null) throw new Error("The daemon does not listen on TCP");
  const { e2bKey } = await daemon.client.keys.create({ name: "bench", scope: "admin" });
  const connection = { apiKey: e2bKey, apiUrl: url, sandboxUrl: url, timeoutMs: TIMEOUT_MS };
  return { daemon, connection, create: () => Sandbox.create(connection) };
}

/** How our API calls the agent that is a sandbox. */
export function agentOf({ sandboxId }: Sandbox): string {
  return `ag_${sandboxId}`;
}

export async function timed(work: () => Promise<unknown>): Promise<number> {
  const begin = performance.now();
  await work();
  return performance.now() - begin;
}
