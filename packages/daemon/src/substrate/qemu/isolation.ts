/**
 * Who a VM process runs as. With a range of uids (the daemon is root) every process has a uid and a gid
 * of its own, and its tenant's group besides; without one all run as the daemon's user.
 *
 * - I1 A uid is never given to a second process while any process of the host runs under it: two VMMs
 *   of one uid could write each other's memory.
 */
import { readdir, stat } from "node:fs/promises";
import { PerdureError } from "@perdure/protocol";

export interface UidRange {
  readonly first: number;
  readonly count: number;
}

/** What one process runs as. */
export interface Credentials {
  readonly uid: number;
  readonly gid: number;
  /** Group of its tenant: may read the tenant's lower layers, and write its copy of a base. */
  readonly tenantGid: number;
}

export interface Isolation {
  /** Null where all processes share the daemon's user. */
  readonly range: UidRange | null;
  take(tenant: string): Promise<{ credentials: Credentials; giveBack: () => void }>;
}

/** Everything under the daemon's own user. */
export function sharedUser(): Isolation {
  const uid = process.getuid?.() ?? 0;
  const gid = process.getgid?.() ?? 0;
  return {
    range: null,
    take: () =>
      Promise.resolve({ credentials: { uid, gid, tenantGid: gid }, giveBack: () => undefined }),
  };
}

/**
 * A uid of its own for every process.
 *
 * @param tenantGid gid of a tenant's group; must lie outside of the range but for its first number
 */
export function ownUsers(range: UidRange, tenantGid: (tenant: string) => number): Isolation {
  const taken = new Set<number>();
  // The first number is the default group of tenants, never a process.
  let next = range.first + 1;
  const last = range.first + range.count - 1;
  return {
    range,
    async take(tenant) {
      const running = await uidsInUse();
      for (let tries = range.count - 1; tries > 0; tries--) {
        const uid = next;
        next = uid >= last ? range.first + 1 : uid + 1;
        if (taken.has(uid) || running.has(uid)) continue;
        taken.add(uid);
        return {
          credentials: { uid, gid: uid, tenantGid: tenantGid(tenant) },
          giveBack: () => void taken.delete(uid),
        };
      }
      throw new PerdureError(
        "machine_start_failed",
        `All ${range.count - 1} uids from ${range.first + 1} on are in use`,
        { hint: "Give the daemon a larger range of uids." },
      );
    },
  };
}

/** Every uid under which some process of this host runs. */
async function uidsInUse(): Promise<Set<number>> {
  const uids = new Set<number>();
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  await Promise.all(
    pids.map(async (pid) => {
      const owner = await stat(`/proc/${pid}`).catch(() => null);
      if (owner !== null) uids.add(owner.uid);
    }),
  );
  return uids;
}
