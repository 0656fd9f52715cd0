/**
 * Every verb of the API as a method, whatever carries it: `Perdure` of Node and `Perdure` of browsers are
 * this with a transport. Examples run as they stand, with `perdure` open.
 */
import { apiLimits, PerdureError, routes } from "@perdure/protocol";
import type {
  AgentState,
  AgentView,
  CheckpointView,
  CreateRequest,
  DoctorReport,
  EgressRequest,
  Health,
  HotRequest,
  HotView,
  LetOut,
  ListResponse,
  Metrics,
  WakeReport,
} from "@perdure/protocol";
import { EventCalls } from "./event-calls.ts";
import { ImageCalls } from "./image-calls.ts";
import { KeyCalls } from "./key-calls.ts";
import { allOfPages, eachOfPages } from "./page.ts";
import type { CallOptions } from "./transport.ts";

export interface ListOptions extends CallOptions {
  /** Names that begin so. */
  readonly prefix?: string;
  readonly state?: AgentState;
  /** Agents that have all of these. */
  readonly labels?: Readonly<Record<string, string>>;
}

export interface ForkOptions extends CallOptions {
  /** Name or id; default: as the agent is now. */
  readonly checkpoint?: string;
  /** Which connections to elsewhere they may make; default: none, whatever the agent itself may. */
  readonly egress?: EgressRequest;
}

/**
 * A client of one daemon. Holds connections until `close()`.
 *
 * Every method rejects with a `PerdureError`: `code` says what happened, `retry` whether the same call
 * may be sent again, `hint` what to do. `daemon_unreachable`: no daemon answers. An agent is named by
 * its name or id everywhere. A call that changes something is carried out once: where the connection
 * breaks before its answer, it is sent again with the same idempotency key.
 */
export class PerdureClient extends EventCalls {
  /** Images on the daemon's host. */
  readonly images = new ImageCalls(this.transport);
  /** API keys of callers over TCP. */
  readonly keys = new KeyCalls(this.transport);

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
    return this.call(routes.create, {}, { json: request, ...options });
  }

  /**
   * Every agent by name, fetched page by page as the loop goes on.
   *
   * @example
   * for await (const agent of perdure.list({ prefix: "a" })) console.log(agent.name, agent.state);
   */
  async *list(options: ListOptions = {}): AsyncGenerator<AgentView> {
    yield* eachOfPages(async (after) => {
      const { agents, next } = await this.listPage({ ...options, ...after });
      return { items: agents, next };
    });
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
    const { signal, prefix, state, labels = {}, after, limit } = options;
    const label = Object.entries(labels).map(([key, value]) => `${key}=${value}`);
    const query = { prefix, state, label, after, limit };
    return this.call(routes.list, {}, { query, signal });
  }

  /**
   * The agent as it is now. Never waits for what the agent is doing.
   *
   * @throws `agent_not_found`
   * @example
   * const { state, generation } = await perdure.show("a1");
   */
  show(agent: string, options: CallOptions = {}): Promise<AgentView> {
    return this.call(routes.show, { agent }, options);
  }

  /**
   * Keeps memory and disk in a checkpoint and ends the VM. Resolves when that is durable.
   *
   * @throws `agent_state`, `sleep_cancelled` where a call arrived meanwhile, `disk_full`
   * @example
   * await perdure.sleep("a1");
   */
  sleep(agent: string, options: CallOptions = {}): Promise<AgentView> {
    return this.call(routes.sleep, { agent }, options);
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
    return this.call(routes.wake, { agent }, options);
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
    return this.call(routes.checkpoint, { agent }, { json: { name }, ...call });
  }

  /**
   * The agent's checkpoints, oldest first.
   *
   * @throws `agent_not_found`
   * @example
   * for (const { id, kind } of await perdure.checkpoints("a1")) console.log(id, kind);
   */
  async checkpoints(agent: string, { signal }: CallOptions = {}): Promise<CheckpointView[]> {
    return allOfPages(async (after) => {
      const query = { ...after, limit: apiLimits.listLimitMax };
      const page = await this.call(routes.checkpoints, { agent }, { query, signal });
      return { items: page.checkpoints, next: page.next };
    });
  }

  /**
   * Shuts the agent down and keeps its disk; programs end.
   *
   * @throws `agent_state`
   * @example
   * await perdure.stop("a1");
   */
  stop(agent: string, options: CallOptions = {}): Promise<AgentView> {
    return this.call(routes.stop, { agent }, options);
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
    return this.call(routes.start, { agent }, options);
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
    return this.call(routes.recover, { agent }, { json: { from }, ...call });
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
    return this.call(routes.restore, { agent }, { json: { checkpoint }, ...options });
  }

  /**
   * A new agent that goes on from a checkpoint of this one, by name or id, under an identity of its own;
   * without one, from what the agent is now.
   *
   * @throws `agent_exists`, `checkpoint_not_found`, `agent_state`
   * @example
   * const { agent } = await perdure.fork("a1", "a1-try");
   */
  async fork(agent: string, name: string, options: ForkOptions = {}): Promise<LetOut> {
    const [made] = await this.forkAll(agent, [name], options);
    if (made === undefined) throw new PerdureError("internal", "The daemon answered no fork");
    return made;
  }

  /**
   * New agents, all of one cut: made side by side, all of them or none. In the order of the names.
   *
   * @param names 1 to 64
   * @throws `agent_exists`, `checkpoint_not_found`, `agent_state`
   * @example
   * const forks = await perdure.forkAll("a1", ["a1-left", "a1-right"]);
   * console.log(forks.map(({ agent }) => agent.name));
   */
  async forkAll(
    agent: string,
    names: readonly string[],
    options: ForkOptions = {},
  ): Promise<LetOut[]> {
    const { checkpoint, egress, ...call } = options;
    const json = { names, checkpoint, egress };
    return (await this.call(routes.fork, { agent }, { json, ...call })).forks;
  }

  /**
   * Keeps machines ready that hold a checkpoint's state: the next forks of it, or restores to it, take one and
   * have only the wake gate before them. They cost memory, and are let go after 15 minutes.
   *
   * @param request.count how many shall be ready, at most 16 of all agents; 0 lets them go
   * @throws `checkpoint_not_found`, `too_many`, `agent_state`
   * @example
   * await perdure.checkpoint("a1", { name: "root" });
   * const { ready } = await perdure.hot("a1", { checkpoint: "root", count: 2 });
   * await perdure.fork("a1", "a1-quick", { checkpoint: "root" });
   */
  hot(agent: string, request: HotRequest, options: CallOptions = {}): Promise<HotView> {
    return this.call(routes.hot, { agent }, { json: request, ...options });
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
    return this.call(routes.drop, { agent, checkpoint }, options);
  }

  /**
   * What the wake gate found when the agent was last let out; null where it never was.
   *
   * @throws `agent_not_found`
   * @example
   * const report = await perdure.report("a1");
   */
  async report(agent: string, options: CallOptions = {}): Promise<WakeReport | null> {
    return (await this.call(routes.report, { agent }, options)).report;
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
    return this.call(routes.remove, { agent }, options);
  }

  /**
   * What this host can and cannot do for VMs.
   *
   * @example
   * const { ready, findings } = await perdure.doctor();
   */
  doctor(options: CallOptions = {}): Promise<DoctorReport> {
    return this.call(routes.doctor, {}, options);
  }

  /**
   * Who answers: version, process and data directory of the daemon.
   *
   * @throws `daemon_unreachable`, `unauthenticated`
   * @example
   * const { version, home } = await perdure.health();
   */
  async health(options: CallOptions = {}): Promise<Health> {
    const answer = await this.call(routes.health, {}, options);
    if ("version" in answer) return answer;
    throw new PerdureError(
      "unauthenticated",
      "The daemon is alive, and tells no more without a key",
      {
        hint: "Pass `apiKey` (PERDURE_API_KEY) with a key that `perdure key create` made on its host.",
      },
    );
  }

  /**
   * What the daemon measures of itself since the last reading.
   *
   * @example
   * const { loopDelayMs } = await perdure.metrics();
   */
  metrics(options: CallOptions = {}): Promise<Metrics> {
    return this.call(routes.metrics, {}, options);
  }

  /**
   * Ends the daemon. VMs go on and are taken over by the next one.
   *
   * @example
   * await perdure.shutdown();
   */
  async shutdown(options: CallOptions = {}): Promise<void> {
    await this.call(routes.shutdown, {}, options);
  }

  /** Cuts every connection: loops over output end with `interrupted`, programs go on. */
  async close(): Promise<void> {
    await this.transport.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
