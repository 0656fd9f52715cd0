/**
 * Starts a VM process: own session, own control group, own user where there is one, no capabilities,
 * no core dumps, no descriptor of the daemon's but a pipe for complaints.
 *
 * - I1 The user is changed before QEMU starts: its own way (`-runas`) does not work under its sandbox.
 * - I2 What QEMU says on stderr is kept to its last 4 KiB and never reaches a disk.
 */
import { Worker } from "node:worker_threads";
import { PerdureError } from "@perdure/protocol";
import type { Credentials } from "./isolation.ts";
import type { LaunchReport, LaunchRequest } from "./launch-worker.ts";
import { qemuLimits } from "./limit.ts";
import type { ProcessIdentity } from "./process.ts";

export interface Launch {
  readonly binary: string;
  readonly arguments: readonly string[];
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

interface Started {
  readonly thread: Worker;
  readonly identity: PromiseWithResolvers<ProcessIdentity>;
  readonly exited: PromiseWithResolvers<string>;
  tail: Buffer;
}

/** Starts VM processes from a thread of its own. */
export class Launcher {
  #thread: Worker | null = this.#open();
  #nextId = 1;
  readonly #started = new Map<number, Started>();

  /** @throws `machine_start_failed` */
  async launch(options: Launch): Promise<LaunchedProcess> {
    const id = this.#nextId++;
    const thread = (this.#thread ??= this.#open());
    const started: Started = {
      thread,
      identity: Promise.withResolvers(),
      exited: Promise.withResolvers(),
      tail: Buffer.alloc(0),
    };
    this.#started.set(id, started);
    ask(thread, { kind: "start", id, script: scriptOf(options) });
    return {
      identity: await started.identity.promise,
      exited: started.exited.promise,
      complaint: () => started.tail.toString("utf8").trim(),
      release: () => {
        if (this.#started.has(id)) ask(thread, { kind: "release", id });
      },
    };
  }

  /** Ends the thread; processes that it started go on. */
  async close(): Promise<void> {
    const thread = this.#thread;
    this.#thread = null;
    await thread?.terminate();
  }

  #open(): Worker {
    const thread = new Worker(new URL("./launch-worker.ts", import.meta.url));
    // A VM outlives the daemon: neither keeps the other waiting.
    thread.unref();
    thread.on("message", (report: LaunchReport) => this.#take(report));
    const lost = (why: string): void => {
      if (this.#thread === thread) this.#thread = null;
      for (const [id, started] of this.#started) {
        if (started.thread === thread) this.#take({ kind: "ended", id, how: why });
      }
    };
    thread.on("error", (error: Error) => lost(`its thread failed: ${error.message}`));
    // However it ends: nobody would tell of a process any more.
    thread.on("exit", () => lost("its thread ended"));
    return thread;
  }

  #take(report: LaunchReport): void {
    const started = this.#started.get(report.id);
    if (started === undefined) return;
    switch (report.kind) {
      case "started":
        started.identity.resolve(report.identity);
        break;
      case "said":
        started.tail = Buffer.concat([started.tail, report.bytes]).subarray(
          -qemuLimits.complaintBytes,
        );
        break;
      case "ended":
        this.#started.delete(report.id);
        started.identity.reject(
          new PerdureError("machine_start_failed", `Cannot start a process: ${report.how}`),
        );
        started.exited.resolve(report.how);
        break;
    }
  }
}

function ask(thread: Worker, request: LaunchRequest): void {
  thread.postMessage(request);
}

/**
 * Joins the control groups, then becomes the program under its own user; keeps its pid. In braces: half
 * of it, from a daemon that died while it wrote, is no script.
 */
function scriptOf(options: Launch): string {
  const { user, cgroupFiles } = options;
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
  const command = ["setpriv", ...privileges, options.binary, ...options.arguments];
  return [
    "{ umask 077; ulimit -c 0",
    ...cgroupFiles.map((file) => `echo $$ > ${quoted(file)} || exit 1`),
    `exec ${command.map(quoted).join(" ")} < /dev/null; }\n`,
  ].join("; ");
}

/** One word for the shell, whatever is in it. */
function quoted(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}
