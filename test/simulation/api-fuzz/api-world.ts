/** The real API server, with both of its doors, before the simulated world. Time goes on by itself. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { CreatedKey, CreateKeyRequest } from "@perdure/protocol";
import { EventLog } from "../../../packages/daemon/src/core/event-log.ts";
import type { Command, Commands } from "../../../packages/daemon/src/core/command.ts";
import { RequestKeeper } from "../../../packages/daemon/src/api/request-keeper.ts";
import { openApiServer } from "../../../packages/daemon/src/api/server.ts";
import type { ApiServer, RequestLogEntry } from "../../../packages/daemon/src/api/server.ts";
import { createFakeImages } from "../../contract/api/fake-images.ts";
import { createRawClient } from "../../contract/api/raw-client.ts";
import type { RawClient } from "../../contract/api/raw-client.ts";
import { World } from "../world.ts";
import type { DrawnRequest } from "./drawn-request.ts";

const MIB = 1024 * 1024;
/** The smallest that the protocol allows: one template for all agents. */
const shape = { memoryBytes: 128 * MIB, cpus: 1, diskBytes: 2048 * MIB };
/** Of simulated time, for each round of what happens at once. */
const STEP_MS = 5;

export class ApiWorld {
  readonly world: World;
  readonly socketPath: string;
  readonly client: RawClient;
  /** Of the doors with keys. */
  readonly tokens = new Map<DrawnRequest["door"], string>();
  /** Answers that are defects, whoever got them. */
  readonly defects: string[] = [];
  server!: ApiServer;
  readonly #folder: string;
  #stopped = false;
  #pumping: Promise<void> = Promise.resolve();

  private constructor(seed: number, folder: string) {
    this.world = new World({ seed });
    Object.assign(this.world.defaults, { idleAfterMs: 60_000, checkpointEveryMs: 45_000 });
    this.#folder = folder;
    this.socketPath = join(folder, "run.sock");
    this.client = createRawClient(this.socketPath);
  }

  static async open(seed: number): Promise<ApiWorld> {
    const made = new ApiWorld(seed, await mkdtemp(join(tmpdir(), "perdure-api-fuzz-")));
    await made.#open();
    return made;
  }

  async #open(): Promise<void> {
    const { world } = this;
    const { state } = world;
    const clock = world.time.clock(world.life);
    const log = (): void => undefined;
    this.#pumping = this.#pump();
    this.server = await openApiServer({
      commands: inShape(world.engine),
      images: createFakeImages(),
      socketPath: this.socketPath,
      tcp: { host: "127.0.0.1", port: 0, tls: null, corsOrigins: [] },
      state,
      clock,
      daemonLog: log,
      requestKeeper: new RequestKeeper({ state, clock, log }),
      events: new EventLog({ state, clock, log }),
      tokenKey: new Uint8Array(32),
      spoolDir: join(tmpdir(), "perdure-spool"),
      health: () => ({
        version: "0.0.0",
        pid: 1,
        startedAtMs: 1,
        home: "/fuzz",
        url: null,
        authorityFile: null,
      }),
      metrics: () => ({ loopDelayMs: { p50: 1, p99: 1, max: 1 } }),
      shutdown: () => undefined,
      log: (entry) => this.#look(entry),
    });
    const key = async (wanted: Partial<CreateKeyRequest>): Promise<string> => {
      const body = { name: `door-${this.tokens.size}`, scope: "admin", ...wanted };
      return ((await this.client.post("/v1/keys", body)).json() as CreatedKey).token;
    };
    this.tokens.set("admin", await key({}));
    this.tokens.set("use", await key({ scope: "use" }));
    this.tokens.set("read", await key({ scope: "read" }));
    this.tokens.set("limited", await key({ agents: ["a1", "a2"] }));
    const expiresAtMs = world.time.nowMs + 60_000;
    this.tokens.set("expired", await key({ expiresAtMs }));
    await world.time.wait(60_001);
    this.tokens.set("wrong", `pdk_${"0".repeat(26)}_${"A".repeat(43)}`);
  }

  /** Ends what is open and lets everything come to rest. */
  async close(): Promise<void> {
    await this.server.close(0);
    this.#stopped = true;
    await this.#pumping;
    await rm(this.#folder, { recursive: true });
  }

  async #pump(): Promise<void> {
    while (!this.#stopped) await this.world.time.advance(STEP_MS);
  }

  /** Nothing is injected here, so nothing may fail but by what was asked. */
  #look({ method, route, code, cause }: RequestLogEntry): void {
    if (code === undefined || !neverAnswered.has(code)) return;
    this.defects.push(`${method} ${route}: ${code}${cause === undefined ? "" : ` ${cause}`}`);
  }
}

const neverAnswered: ReadonlySet<string> = new Set([
  ...["internal", "store_failed", "machine_failed", "machine_start_failed", "template_failed"],
  ...["checkpoint_digest_mismatch", "checkpoint_signature", "checkpoint_key_missing"],
  ...["checkpoint_continued", "guest_protocol_violation", "clock_skew", "data_too_new"],
]);

/** The engine, with the world's only image and one shape; files are what the simulation has none of. */
function inShape(engine: Commands): Commands {
  const execute = (command: Command): Promise<unknown> =>
    engine.execute(
      command.kind === "create"
        ? { ...command, shape, image: command.image === "debian" ? "base" : command.image }
        : command,
    );
  const doctor = (): Promise<unknown> => Promise.resolve({ ready: true, findings: [] });
  return new Proxy(engine, {
    get: (target, property): unknown => {
      if (property === "execute") return execute;
      if (property === "doctor") return doctor;
      const value: unknown = Reflect.get(target, property, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}
