/**
 * Composition root: the only file that names concrete adapters.
 *
 * Order of start: state store (its lock makes this the only daemon of the data directory), keys,
 * substrate, stores, engine; then what an earlier daemon left is settled; then the socket opens. A
 * stop lets go of VMs without ending them: the next daemon adopts them.
 */
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { join } from "node:path";
import { randomBytes } from "node:crypto";
import { apiLimits, type Metrics } from "@perdure/protocol";
import { RequestKeeper } from "./api/request-keeper.ts";
import { openApiServer } from "./api/server.ts";
import { PREVIEW_DOMAIN_DEFAULT } from "./api/tcp.ts";
import type { TcpListen, TcpSettings } from "./api/tcp.ts";
import { openCertificates } from "./api/tls/open.ts";
import { openKeyRing } from "./checkpoints/key-ring.ts";
import { openLocalCheckpointStore } from "./checkpoints/local/local-checkpoint-store.ts";
import { openLocalTemplateStore } from "./checkpoints/local/local-template-store.ts";
import { WorkPool } from "./checkpoints/work/pool.ts";
import { createSystemClock } from "./clock.ts";
import { ConnectionLog } from "./core/connection-log.ts";
import { Engine } from "./core/engine.ts";
import { HotChildren } from "./core/hot-children.ts";
import { EventLog } from "./core/event-log.ts";
import type { Clock } from "./core/ports/clock.ts";
import type { Log } from "./core/ports/log.ts";
import { ImageHolds } from "./core/image-hold.ts";
import { ImageVerbs } from "./core/image-verb.ts";
import { engineLimits } from "./core/limit.ts";
import { PageBuffers } from "./core/page-buffers.ts";
import { SparePlan } from "./core/spare-plan.ts";
import type { StepHook } from "./core/step.ts";
import { Turns } from "./core/turns.ts";
import { diagnose } from "./doctor.ts";
import { createEgress } from "./egress/open.ts";
import { createGuestLinks } from "./guest-link/open.ts";
import { createIdentitySource } from "./identity.ts";
import { createImageStore } from "./images/image-store.ts";
import { createImageUses } from "./images/image-use.ts";
import { openImageWorkshop } from "./images/image-workshop.ts";
import { openSqliteStateStore } from "./state/sqlite/sqlite-state-store.ts";
import { openQemuSubstrate } from "./substrate/qemu/qemu-substrate.ts";

export const VERSION = "0.1.0";

export interface DaemonOptions {
  /** Data directory: state, keys, agents. */
  readonly home: string;
  /** Sockets; made anew where it is gone. */
  readonly run: string;
  readonly socket: string;
  readonly images: string;
  /** Where callers with API keys are let in; null: nowhere. */
  readonly tcp: TcpSettings | null;
  readonly accelerator: "auto" | "tcg" | "kvm";
  /** Spares per spec, for the two specs that were used last. */
  readonly spares: number;
  /** Null: as measured. Infinity: never. */
  readonly ownBaseAboveBytes: number | null;
  /** Of agents whose create says nothing else; null: never. */
  readonly idleAfterMs: number | null;
  readonly checkpointEveryMs: number | null;
  readonly log: Log;
  readonly step: StepHook;
}

export interface Daemon {
  /** Resolves when someone asked for a shutdown over the API. */
  readonly shutdownAsked: Promise<void>;
  close(): Promise<void>;
}

/** A raise waits for the disk and for its guest now and then: two keep a core busy. */
const RAISES_PER_CORE = 2;

/** After this long a hot child that nobody took is ended. */
const HOT_CHILDREN_KEPT_MS = 15 * 60_000;

/** uids for VM processes where the daemon is root; the first number is the tenants' group. */
const vmUids = { first: 200_000, count: 65_536 };

export async function openDaemon(options: DaemonOptions): Promise<Daemon> {
  const { home, run, socket, images, log } = options;
  const startedAtMs = Date.now();
  const loopDelay = monitorEventLoopDelay({ resolution: 5 });
  loopDelay.enable();
  await mkdir(home, { recursive: true, mode: 0o711 });
  await mkdir(run, { recursive: true, mode: 0o711 });
  const clock = createSystemClock();
  // What was opened is closed in the opposite order: at the end, or where a later part fails to open.
  await using opened = new AsyncDisposableStack();
  const state = await openSqliteStateStore({ path: join(home, "perdure.db") });
  opened.defer(() => state.close());
  const requestKeeper = new RequestKeeper({ state, clock, log });
  const events = new EventLog({ state, clock, log });
  const connections = new ConnectionLog({ state, clock, log });
  // The engine is closed before: its connections have ended.
  opened.defer(() => connections.settled());
  // The engine is closed before: what it was asked ends, and its answer is kept.
  opened.defer(() => requestKeeper.settled());
  const keyRing = await openKeyRing(home);
  const isRoot = process.getuid?.() === 0;
  const buffers = new PageBuffers();
  const substrate = await openQemuSubstrate({
    homeId: await homeId(home),
    runDir: join(run, "vm"),
    dataDir: home,
    sharedDirs: [images],
    accelerator: options.accelerator,
    ...(isRoot ? { uidRange: vmUids } : {}),
    clock,
    log,
    buffers,
  });
  const pool = new WorkPool(buffers);
  opened.defer(() => pool.close());
  const templates = await openLocalTemplateStore({
    home,
    images,
    tenantCopies: substrate.needsWritableBase,
    keyRing,
    clock,
    pool,
    onDamage: ({ owner, path }) => log("error", "A template is damaged", { owner, path }),
  });
  opened.defer(() => templates.close());
  const checkpoints = await openLocalCheckpointStore({
    home,
    keyRing,
    clock,
    pool,
    findTemplateBase: (tenant, digest) => templates.findBase(tenant, digest),
    onDamage: ({ owner, path }) => log("error", "A stored file is damaged", { owner, path }),
  });
  opened.defer(() => checkpoints.close());
  opened.defer(() => substrate.close());
  const imageSource = createImageStore(images);
  const workshop = await openImageWorkshop({ directory: images, log });
  opened.defer(() => workshop.close());
  const imageUses = createImageUses(images, { id: await homeId(home), home });
  const imageHolds = new ImageHolds({ state, imageUses, clock, log });
  const spares = new SparePlan(substrate, { specsMax: 2, sparesPerSpec: options.spares });
  // Known before it listens, or as soon as it does where any port will do.
  let ownPorts = options.tcp === null ? [] : [options.tcp.port];
  const engine = new Engine(
    {
      clock,
      state,
      checkpoints,
      templates,
      substrate,
      raises: new Turns(clock, {
        atOnce: RAISES_PER_CORE * availableParallelism(),
        lendMs: engineLimits.raiseTurnMs,
      }),
      spares,
      hotChildren: new HotChildren({
        clock,
        childrenMax: apiLimits.hotChildrenMax,
        keptMs: HOT_CHILDREN_KEPT_MS,
      }),
      links: createGuestLinks({ clock }),
      egress: createEgress({ clock, ownPorts: () => ownPorts }),
      connections,
      images: imageSource,
      imageHolds,
      identities: createIdentitySource(),
      ownBaseAboveBytes: () => options.ownBaseAboveBytes ?? substrate.breakEvenBytes(),
      defaults: {
        idleAfterMs: options.idleAfterMs,
        checkpointEveryMs: options.checkpointEveryMs,
      },
      step: options.step,
      log,
    },
    async () =>
      diagnose({
        home,
        nodeVersion: process.versions.node,
        images: await imageSource.list(),
        ...(await substrate.describeHost()),
      }),
  );
  opened.defer(() => engine.close());
  await connections.begin();
  await engine.restart();

  let askShutdown = (): void => undefined;
  const shutdownAsked = new Promise<void>((resolve) => (askShutdown = resolve));
  const tcp = await openTcp(options, clock);
  opened.defer(() => tcp?.tls?.close());
  const server = await openApiServer({
    commands: engine,
    images: new ImageVerbs({
      ...{ images: imageSource, imageHolds, workshop, state, templates, spares, log },
    }),
    socketPath: socket,
    tcp,
    state,
    clock,
    daemonLog: log,
    requestKeeper,
    events,
    tokenKey: keyRing.derive("sandbox access tokens"),
    spoolDir: join(run, "spool"),
    health: () => ({
      ...{ version: VERSION, pid: process.pid, startedAtMs, home },
      ...{ url: server.url, authorityFile: tcp?.tls?.authorityFile ?? null },
    }),
    metrics: (): Metrics => {
      const delay = {
        p50: loopDelay.percentile(50) / 1e6,
        p99: loopDelay.percentile(99) / 1e6,
        max: loopDelay.max / 1e6,
      };
      loopDelay.reset();
      return { loopDelayMs: delay };
    },
    shutdown: askShutdown,
    log: ({ cause, ...entry }) => {
      if (cause !== undefined) log("error", "A request met a defect", { ...entry, cause });
      else log("debug", "Request", { ...entry });
    },
  });
  opened.defer(() => server.close());
  if (server.url !== null) ownPorts = [portOf(server.url)];
  log("info", "Ready", { socket, home, ...(server.url === null ? {} : { url: server.url }) });
  const held = opened.move();
  return { shutdownAsked, close: () => held.disposeAsync() };
}

async function openTcp({ tcp, home, log }: DaemonOptions, clock: Clock): Promise<TcpListen | null> {
  if (tcp === null) return null;
  const { host, previewDomain: domain = PREVIEW_DOMAIN_DEFAULT } = tcp;
  const facts = { home, host, domain, nowMs: () => clock.nowMs(), log };
  return { ...tcp, tls: tcp.tls === null ? null : await openCertificates(tcp.tls, facts) };
}

function portOf(url: string): number {
  const { port, protocol } = new URL(url);
  return port === "" ? (protocol === "https:" ? 443 : 80) : Number(port);
}

/** Names this data directory in the command lines of its VMs. Made once. */
async function homeId(home: string): Promise<string> {
  const path = join(home, "home-id");
  try {
    await writeFile(path, randomBytes(6).toString("hex"), { flag: "wx", mode: 0o600 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
  return (await readFile(path, "utf8")).trim();
}
