/**
 * Starts a VM process: own session, own control group, own user where there is one, no capabilities,
 * no core dumps, no descriptor of the daemon's but a pipe for complaints.
 *
 * - I1 The user is changed before QEMU starts: its own way (`-runas`) does not work under its sandbox.
 * - I2 What QEMU says on stderr is kept to its last 4 KiB and never reaches a disk.
 */
import { spawn, type ChildProcess } from "node:child_process";
import type { Socket } from "node:net";
import { PerdureError } from "@perdure/protocol";
import type { Credentials } from "./isolation.ts";
import { qemuLimits } from "./limit.ts";
import { identify, type ProcessIdentity } from "./process.ts";

export interface Launch {
  readonly binary: string;
  readonly arguments: readonly string[];
  readonly cwd: string;
  /** Null: stay the daemon's user. */
  readonly user: Credentials | null;
  /** Further groups, such as that of /dev/kvm. */
  readonly groups: readonly number[];
  readonly cgroupFiles: readonly string[];
}

export interface LaunchedProcess {
  readonly identity: ProcessIdentity;
  /** Resolves when it has ended, with how. */
  readonly exited: Promise<string>;
  /** Last of what it wrote to stderr. */
  complaint(): string;
  /** Lets the daemon end while it runs on. */
  release(): void;
}

/** Joins the control groups, then becomes the rest of the arguments; keeps its pid. */
const joinAndRun =
  'umask 077; ulimit -c 0; while [ "$1" != -- ]; do echo $$ > "$1" || exit 1; shift; done; shift; exec "$@"';

export async function launch(options: Launch): Promise<LaunchedProcess> {
  const { user } = options;
  const privileges =
    user === null
      ? ["--no-new-privs"]
      : [
          `--reuid=${user.uid}`,
          `--regid=${user.gid}`,
          `--groups=${[user.gid, user.tenantGid, ...options.groups].join(",")}`,
          "--no-new-privs",
          "--bounding-set=-all",
          "--inh-caps=-all",
        ];
  const child = spawn(
    "/bin/sh",
    [
      "-c",
      joinAndRun,
      "perdure-launch",
      ...options.cgroupFiles,
      "--",
      "setpriv",
      ...privileges,
      options.binary,
      ...options.arguments,
    ],
    {
      cwd: options.cwd,
      env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", LANG: "C.UTF-8" },
      detached: true,
      stdio: ["ignore", "ignore", "pipe"],
    },
  );
  let tail = Buffer.alloc(0);
  child.stderr.on("data", (chunk: Buffer) => {
    tail = Buffer.concat([tail, chunk]).subarray(-qemuLimits.complaintBytes);
  });
  child.stderr.on("error", () => undefined);
  const exited = exitOf(child);
  // A VM outlives the daemon: neither keeps the other waiting.
  child.unref();
  if ("unref" in child.stderr) (child.stderr as Socket).unref();
  if (child.pid === undefined) {
    throw new PerdureError("machine_start_failed", `Cannot start a process: ${await exited}`);
  }
  return {
    identity: await identify(child.pid),
    exited,
    complaint: () => tail.toString("utf8").trim(),
    release() {
      child.stderr.destroy();
    },
  };
}

function exitOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve) => {
    child.once("error", (error) => resolve(error.message));
    child.once("exit", (code, signal) =>
      resolve(signal === null ? `exit code ${code ?? 0}` : `killed by ${signal}`),
    );
  });
}
