/** An agent as E2B's API shows a sandbox. */
import type { AgentView, EgressView } from "@perdure/protocol";
import { MIB } from "@perdure/protocol";
import type { GuestStats } from "../../core/ports/guest-link.ts";
import type { E2bContext } from "./e2b-context.ts";
import { networkOf } from "./network.ts";
import { sandboxIdOf } from "./sandbox-id.ts";

/**
 * What the services claim to be: everything that clients ask for up to this version works. From 0.6.3 on what a
 * watch tells would have the facts of what it is about.
 */
export const ENVD_VERSION = "0.6.2";

/** The name under which clients ask for the image that is there where none is named. */
export const BASE_TEMPLATE = "base";

/** Of an agent that has no end: the last moment that every client can read. */
const NEVER = "9999-12-31T23:59:59.000Z";

type Parts = Pick<E2bContext, "tokens" | "sandboxDomain">;

export type SandboxState = "running" | "paused";

/** What neither runs nor comes up is shown as paused: `connect` is the way on. */
export function sandboxState({ state }: AgentView): SandboxState {
  switch (state) {
    case "awake":
    case "creating":
    case "waking":
      return "running";
    case "falling-asleep":
    case "asleep":
    case "stopping":
    case "stopped":
    case "quarantined":
    case "failed":
    case "removed":
      return "paused";
  }
}

/** As create, connect and fork answer. */
export function sandboxOf({ id, image }: AgentView, { tokens, sandboxDomain }: Parts) {
  return {
    templateID: image.name,
    sandboxID: sandboxIdOf(id),
    clientID: "perdure",
    envdVersion: ENVD_VERSION,
    envdAccessToken: tokens.of(id, "services"),
    trafficAccessToken: tokens.of(id, "traffic"),
    domain: sandboxDomain(),
  };
}

export function listedSandbox(view: AgentView) {
  const { id, image, shape, createdAtMs, end, labels } = view;
  return {
    templateID: image.name,
    sandboxID: sandboxIdOf(id),
    clientID: "perdure",
    startedAt: new Date(createdAtMs).toISOString(),
    endAt: end?.atMs == null ? NEVER : new Date(end.atMs).toISOString(),
    state: sandboxState(view),
    cpuCount: shape.cpus,
    memoryMB: shape.memoryBytes / MIB,
    diskSizeMB: shape.diskBytes / MIB,
    envdVersion: ENVD_VERSION,
    metadata: labels,
  };
}

/** @param mayEnter whether the caller may more than look */
export function sandboxDetail(
  { view, egress }: { readonly view: AgentView; readonly egress: EgressView },
  { tokens, sandboxDomain }: Parts,
  mayEnter: boolean,
) {
  const { id, end, wakeOnTraffic, portsPublic } = view;
  return {
    ...listedSandbox(view),
    ...(mayEnter ? { envdAccessToken: tokens.of(id, "services") } : {}),
    domain: sandboxDomain(),
    allowInternetAccess: egress.otherwise === "allow",
    network: { ...networkOf(egress), allowPublicTraffic: portsPublic },
    lifecycle: { onTimeout: end?.then === "remove" ? "kill" : "pause", autoResume: wakeOnTraffic },
  };
}

/** @param cpuUsedPct of all CPUs together */
export function metricOf(
  { shape: { cpus } }: AgentView,
  stats: GuestStats,
  cpuUsedPct: number,
  nowMs: number,
) {
  return {
    timestamp: new Date(nowMs).toISOString(),
    timestampUnix: Math.floor(nowMs / 1000),
    cpuCount: cpus,
    cpuUsedPct,
    memUsed: stats.memTotalBytes - stats.memAvailableBytes,
    memTotal: stats.memTotalBytes,
    memCache: stats.cachedBytes,
    diskUsed: stats.diskTotalBytes - stats.diskFreeBytes,
    diskTotal: stats.diskTotalBytes,
  };
}
