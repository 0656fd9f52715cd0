/**
 * Prepares what every start of a VM process needs: folders, users, control groups, worker threads.
 */
import { mkdir } from "node:fs/promises";
import { PerdureError } from "@perdure/protocol";
import { PageBuffers } from "../../core/page-buffers.ts";
import type { Clock } from "../../core/ports/clock.ts";
import { kvmGroups } from "./acceleration.ts";
import { openCgroups } from "./cgroup.ts";
import { Grants } from "./grant.ts";
import { MemoryWorkers } from "./guest-memory.ts";
import { ownUsers, sharedUser, type UidRange } from "./isolation.ts";
import type { StartTools } from "./machine-start.ts";
import { findQemu } from "./qemu-binary.ts";
import { Launcher } from "./launch.ts";
import { checkRunDir } from "./run-folder.ts";

export interface StartToolsOptions {
  /** Tells this data directory's processes from those of others: 1 to 32 of a–z, 0–9. */
  readonly homeId: string;
  /** Sockets of machines; a short path. Made, and opened for passing through. */
  readonly runDir: string;
  /** Files that machines of this home use. */
  readonly dataDir: string;
  /** Further folders of the daemon's that hold files of machines (images, templates). */
  readonly sharedDirs?: readonly string[];
  /** Users for VM processes. Left out: all run as the daemon's user, one tenant. Needs root. */
  readonly uidRange?: UidRange;
  /** Group of a tenant. Default: the first number of the range for all. */
  readonly tenantGid?: (tenant: string) => number;
  readonly clock: Clock;
  /** Shared with whoever reads and writes pages on the other side; own ones where left out. */
  readonly buffers?: PageBuffers;
}

/** @throws `host_not_ready` */
export async function openStartTools(options: StartToolsOptions): Promise<StartTools> {
  const { homeId, runDir, dataDir, clock, uidRange } = options;
  if (!/^[a-z0-9]{1,32}$/.test(homeId)) {
    throw new PerdureError("internal", `"${homeId}" cannot name a home: 1 to 32 of a-z and 0-9`);
  }
  checkRunDir(runDir);
  const qemu = await findQemu();
  const folders = [runDir, dataDir, ...(options.sharedDirs ?? [])];
  const grants = new Grants(folders, uidRange !== undefined);
  for (const folder of [runDir, dataDir]) {
    await mkdir(folder, { recursive: true });
    await grants.passable(folder);
  }
  return {
    homeId,
    runDir,
    dataDir,
    qemu,
    isolation:
      uidRange === undefined
        ? sharedUser()
        : ownUsers(uidRange, options.tenantGid ?? (() => uidRange.first)),
    cgroups: await openCgroups(homeId),
    grants,
    workers: new MemoryWorkers(options.buffers ?? new PageBuffers()),
    launcher: new Launcher(),
    clock,
    kvmGroups: await kvmGroups(),
  };
}
