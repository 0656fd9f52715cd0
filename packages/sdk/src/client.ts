/** `Perdure`: every verb of the API as a method. Examples run as they stand, with `perdure` open. */
import { answerSchema, pathOf, PerdureError, routes } from "@perdure/protocol";
import type {
  AgentState,
  AgentView,
  ApiRoute,
  CheckpointView,
  CreateRequest,
  DoctorReport,
  ExecRequest,
  Health,
  JsonAnswer,
  LetOut,
  ListResponse,
  Metrics,
  ProcessView,
  WakeReport,
} from "@perdure/protocol";
import { COLLECT_BYTES_DEFAULT, createCollector } from "./collected-output.ts";
import type { RunResult } from "./collected-output.ts";
import { createFileRead } from "./file-read.ts";
import type { FileRead } from "./file-read.ts";
import { daemonPaths } from "./paths.ts";
import { interruptedError, ProcessHandle } from "./process-handle.ts";
import { createTransport } from "./transport.ts";
import type { Call, CallOptions, Transport } from "./transport.ts";

export interface PerdureOptions {
  /** Unix socket of the daemon. Default: see `daemonPaths`. */
  readonly socketPath?: string;
  /** A daemon that listens on TCP, as in `http://127.0.0.1:7070`. Instead of `socketPath`. */
  readonly url?: string;
}

export interface ListOptions extends CallOptions {
  /** Names that begin so. */
  readonly prefix?: string;
  readonly state?: AgentState;
}

/** All but the program itself; see `execRequestSchema` for bounds and defaults. */
export type ExecOptions = Omit<ExecRequest, "argv">;

export interface FileOptions extends CallOptions {
  /** Whose rights count inside; default `user`. */
  readonly user?: string;
}

/**
 * A client of one daemon. Holds connections until `close()`.
 *
 * Every method rejects with a `PerdureError`: `code` says what happened, `retry` whether the same call
 * may be sent again, `hint` what to do. `daemon_unreachable`: no daemon answers. An agent is named by
 * its name or id everywhere.
 *
 * @example
 * const client = new Perdure();
 * await client.close();
 */
export class Perdure {
  readonly #transport: Transport;

  constructor(options: PerdureOptions = {}) {
    this.#transport = createTransport(
      options.url === undefined
        ? { socketPath: options.socketPath ?? daemonPaths().socket }
        : { url: options.url },
    );
  }

  /**
   * Creates an agent and wakes it for the first time. Sizes in bytes; defaults: image `debian`, 512 MiB
   * of memory, 1 CPU, 8 GiB of disk.
   *
   * @throws `agent_exists`, `image_not_found`, `disk_full`, `bad_request`
   * @example
   * const agent = await perdure.create({ name: "builder", memoryBytes: 1024 * 1024 * 1024 });
   * console.log(agent.state); // awake
   */
  create(request: CreateRequest, options: CallOptions = {}): Promise<AgentView> {
    return this.#call(routes.create, {}, { json: request, ...options });
  }

  /**
   * Every agent by name, fetched page by page as the loop goes on.
   *
   * @example
   * for await (const agent of perdure.list({ prefix: "a" })) console.log(agent.name, agent.state);
   */
  async *list(options: ListOptions = {}): AsyncGenerator<AgentView> {
    let after: string | undefined;
    do {
      const page = await this.listPage({ ...options, ...(after === undefined ? {} : { after }) });
      yield* page.agents;
      after = page.next ?? undefined;
    } while (after !== undefined);
  }

  /**
   * One page of `list`. Pass its `next` as `after` for the next one; null on the last.
   *
   * @param options.limit 1 to 1000, default 100
   * @example
   * const { agents, next } = await perdure.listPage({ limit: 20 });
   */
  listPage(
    options: ListOptions & { readonly after?: string; readonly limit?: number } = {},
  ): Promise<ListResponse> {
    const { signal, prefix, state, after, limit } = options;
    return this.#call(routes.list, {}, { query: { prefix, state, after, limit }, signal });
  }

  /**
   * The agent as it is now. Never waits for what the agent is doing.
   *
   * @throws `agent_not_found`
   * @example
   * const { state, generation } = await perdure.show("a1");
   */
  show(agent: string, options: CallOptions = {}): Promise<AgentView> {
    return this.#call(routes.show, { agent }, options);
  }

  /**
   * Keeps memory and disk in a checkpoint and ends the VM. Resolves when that is durable.
   *
   * @throws `agent_state`, `sleep_cancelled` where a call arrived meanwhile, `disk_full`
   * @example
   * await perdure.sleep("a1");
   */
  sleep(agent: string, options: CallOptions = {}): Promise<AgentView> {
    return this.#call(routes.sleep, { agent }, options);
  }

  /**
   * Wakes the agent exactly where it was. Does nothing where it is awake. The report says what the
   * wake gate checked and how long each phase took.
   *
   * @throws `agent_state`, `agent_quarantined`, `wake_timeout`
   * @example
   * const { report } = await perdure.wake("a1");
   * console.log(report?.verdict, report?.phases);
   */
  wake(agent: string, options: CallOptions = {}): Promise<LetOut> {
    return this.#call(routes.wake, { agent }, options);
  }

  /**
   * Takes a checkpoint of the awake agent, which goes on. A name makes it kept.
   *
   * @throws `agent_state`, `freeze_timeout`, `flush_timeout`, `disk_full`
   * @example
   * const { id, pauseMs } = await perdure.checkpoint("a1", { name: "before-upgrade" });
   */
  checkpoint(
    agent: string,
    options: CallOptions & { readonly name?: string } = {},
  ): Promise<CheckpointView> {
    const { name, ...call } = options;
    return this.#call(routes.checkpoint, { agent }, { json: { name }, ...call });
  }

  /**
   * The agent's checkpoints, oldest first.
   *
   * @throws `agent_not_found`
   * @example
   * for (const { id, kind } of await perdure.checkpoints("a1")) console.log(id, kind);
   */
  async checkpoints(agent: string, options: CallOptions = {}): Promise<CheckpointView[]> {
    return (await this.#call(routes.checkpoints, { agent }, options)).checkpoints;
  }

  /**
   * Shuts the agent down and keeps its disk; programs end.
   *
   * @throws `agent_state`
   * @example
   * await perdure.stop("a1");
   */
  stop(agent: string, options: CallOptions = {}): Promise<AgentView> {
    return this.#call(routes.stop, { agent }, options);
  }

  /**
   * Boots the agent from its disk, without memory.
   *
   * @throws `agent_state`, `machine_start_failed`
   * @example
   * await perdure.stop("a1");
   * await perdure.start("a1");
   */
  start(agent: string, options: CallOptions = {}): Promise<LetOut> {
    return this.#call(routes.start, { agent }, options);
  }

  /**
   * Brings a failed agent back from its last checkpoint or its newest disk; the cut that is not taken
   * is kept, and the report names it.
   *
   * @param options.from default: the agent's `onCrash`
   * @throws `agent_state`, `checkpoint_not_found`
   * @example
   * const { report } = await perdure.recover("a1", { from: "checkpoint" });
   */
  recover(
    agent: string,
    options: CallOptions & { readonly from?: "checkpoint" | "disk" } = {},
  ): Promise<LetOut> {
    const { from, ...call } = options;
    return this.#call(routes.recover, { agent }, { json: { from }, ...call });
  }

  /**
   * Goes back to a checkpoint that is kept, by name or id, whatever state the agent is in. What the agent is
   * now is kept as a checkpoint first; the report names it (`otherCut`).
   *
   * @throws `checkpoint_not_found`, `checkpoint_digest_mismatch`, `wake_timeout`
   * @example
   * await perdure.checkpoint("a1", { name: "before-upgrade" });
   * const { report } = await perdure.restore("a1", "before-upgrade");
   */
  restore(agent: string, checkpoint: string, options: CallOptions = {}): Promise<LetOut> {
    return this.#call(routes.restore, { agent }, { json: { checkpoint }, ...options });
  }

  /**
   * A new agent that goes on from a checkpoint of this one, by name or id, under an identity of its own;
   * without one, from what the agent is now.
   *
   * @throws `agent_exists`, `checkpoint_not_found`, `agent_state`
   * @example
   * const { agent } = await perdure.fork("a1", "a1-try");
   */
  fork(
    agent: string,
    name: string,
    options: CallOptions & { readonly checkpoint?: string } = {},
  ): Promise<LetOut> {
    const { checkpoint, ...call } = options;
    return this.#call(routes.fork, { agent }, { json: { name, checkpoint }, ...call });
  }

  /**
   * Forgets a kept checkpoint, by name or id, and frees what nothing else needs. The newest one only loses
   * its name.
   *
   * @throws `checkpoint_not_found`, `agent_state`
   * @example
   * await perdure.checkpoint("a1", { name: "no-longer-needed" });
   * await perdure.drop("a1", "no-longer-needed");
   */
  drop(agent: string, checkpoint: string, options: CallOptions = {}): Promise<AgentView> {
    return this.#call(routes.drop, { agent, checkpoint }, options);
  }

  /**
   * What the wake gate found when the agent was last let out; null where it never was.
   *
   * @throws `agent_not_found`
   * @example
   * const report = await perdure.report("a1");
   */
  async report(agent: string, options: CallOptions = {}): Promise<WakeReport | null> {
    return (await this.#call(routes.report, { agent }, options)).report;
  }

  /**
   * Removes the agent: its key is destroyed, then its files. There is no way back.
   *
   * @throws `agent_not_found`, `agent_state`
   * @example
   * await perdure.create({ name: "short-lived" });
   * await perdure.remove("short-lived");
   */
  remove(agent: string, options: CallOptions = {}): Promise<AgentView> {
    return this.#call(routes.remove, { agent }, options);
  }

  /**
   * Starts a program in the agent and resolves as soon as it runs. Wakes the agent first where it is
   * asleep. The program outlives this client.
   *
   * @param argv program and arguments; no shell is involved
   * @throws `exec_failed`, `user_not_found`, `path_not_found` for `cwd`, `agent_state`
   * @example
   * const process = await perdure.exec("a1", ["sh", "-c", "echo $GREETING"], {
   *   env: { GREETING: "hello" },
   *   timeoutMs: 60_000,
   * });
   * console.log(process.process);
   */
  async exec(
    agent: string,
    argv: readonly string[],
    request: ExecOptions = {},
    options: CallOptions = {},
  ): Promise<ProcessHandle> {
    const body = { ...request, argv };
    const { process } = await this.#call(routes.exec, { agent }, { json: body, ...options });
    return new ProcessHandle(this.#transport, agent, process);
  }

  /**
   * A handle on a process that was started before. Does no I/O.
   *
   * @example
   * const { process } = await perdure.exec("a1", ["echo", "hello"]);
   * const exit = await perdure.process("a1", process).wait();
   */
  process(agent: string, process: number): ProcessHandle {
    return new ProcessHandle(this.#transport, agent, process);
  }

  /**
   * Runs a program to its end and collects its output.
   *
   * @param request.limitBytes keeps the first bytes of both streams together, default 16 MiB
   * @throws as `exec`; `interrupted` where the agent sleeps or stops first
   * @example
   * const { exitCode, stdout } = await perdure.run("a1", ["uname", "-r"]);
   * console.log(exitCode, new TextDecoder().decode(stdout));
   */
  async run(
    agent: string,
    argv: readonly string[],
    request: Omit<ExecOptions, "stdin"> & { readonly limitBytes?: number } = {},
    options: CallOptions = {},
  ): Promise<RunResult> {
    const { limitBytes = COLLECT_BYTES_DEFAULT, ...rest } = request;
    const handle = await this.exec(agent, argv, rest, options);
    const collector = createCollector(limitBytes);
    for await (const event of handle.output(options)) {
      collector.add(event);
      if (event.type === "exit") return collector.result(handle.process, event);
      if (event.type === "interrupted") throw interruptedError(handle, event);
    }
    throw new PerdureError("internal", "The output ended without an exit");
  }

  /**
   * Programs that exec started in the agent, in order of start.
   *
   * @throws `agent_not_found`
   * @example
   * for (const { process, argv, running } of await perdure.processes("a1")) {
   *   console.log(process, argv.join(" "), running);
   * }
   */
  async processes(agent: string, options: CallOptions = {}): Promise<ProcessView[]> {
    return (await this.#call(routes.processes, { agent }, options)).processes;
  }

  /**
   * Reads a file of the agent. Symbolic links are never followed.
   *
   * @throws `path_not_found`, `path_denied`, `path_is_link`, `path_is_directory`
   * @example
   * await perdure.writeFile("a1", "/home/user/note", "hello");
   * const file = await perdure.readFile("a1", "/home/user/note");
   * console.log(file.facts.size, await file.text());
   */
  async readFile(agent: string, path: string, options: FileOptions = {}): Promise<FileRead> {
    const { user, ...call } = options;
    const query = { path, user };
    const url = pathOf(routes.readFile, { agent });
    return createFileRead(
      await this.#transport.stream({ method: "GET", path: url, query, ...call }),
    );
  }

  /**
   * Writes a file of the agent: whole, or not at all.
   *
   * @param content an iterable needs `size`, its length in bytes
   * @param options.mode permission bits, default 0o644
   * @throws `path_not_found` for the folder, `path_denied`, `size_mismatch`, `too_large`, `disk_full`
   * @example
   * await perdure.writeFile("a1", "/home/user/run.sh", "#!/bin/sh\necho hi\n", { mode: 0o755 });
   */
  async writeFile(
    agent: string,
    path: string,
    content: string | Uint8Array | AsyncIterable<Uint8Array>,
    options: FileOptions & { readonly mode?: number; readonly size?: number } = {},
  ): Promise<void> {
    const body = typeof content === "string" ? new TextEncoder().encode(content) : content;
    const size = body instanceof Uint8Array ? body.length : options.size;
    if (size === undefined) {
      throw new PerdureError("bad_request", `Cannot write "${path}": its size is not known`, {
        hint: "Pass `size` along with an iterable.",
      });
    }
    const mode = options.mode?.toString(8).padStart(3, "0");
    await this.#transport.empty({
      method: "PUT",
      path: pathOf(routes.writeFile, { agent }),
      query: { path, user: options.user, mode },
      body,
      size,
      signal: options.signal,
    });
  }

  /**
   * What this host can and cannot do for VMs.
   *
   * @example
   * const { ready, findings } = await perdure.doctor();
   */
  doctor(options: CallOptions = {}): Promise<DoctorReport> {
    return this.#call(routes.doctor, {}, options);
  }

  /**
   * Who answers: version, process and data directory of the daemon.
   *
   * @throws `daemon_unreachable`
   * @example
   * const { version, home } = await perdure.health();
   */
  health(options: CallOptions = {}): Promise<Health> {
    return this.#call(routes.health, {}, options);
  }

  /**
   * What the daemon measures of itself since the last reading.
   *
   * @example
   * const { loopDelayMs } = await perdure.metrics();
   */
  metrics(options: CallOptions = {}): Promise<Metrics> {
    return this.#call(routes.metrics, {}, options);
  }

  /**
   * Ends the daemon. VMs go on and are taken over by the next one.
   *
   * @example
   * await perdure.shutdown();
   */
  async shutdown(options: CallOptions = {}): Promise<void> {
    await this.#call(routes.shutdown, {}, options);
  }

  #call<R extends ApiRoute>(
    route: R,
    params: Readonly<Record<string, string | number>>,
    call: Omit<Call, "method" | "path">,
  ): Promise<JsonAnswer<R>> {
    const to = { method: route.method, path: pathOf(route, params) };
    return this.#transport.json(answerSchema(route), { ...to, ...call });
  }

  /** Cuts every connection: loops over output end with `interrupted`, programs go on. */
  async close(): Promise<void> {
    await this.#transport.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
