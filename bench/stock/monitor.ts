/**
 * A small client of QEMU's monitor (QMP), for the stock side alone. It speaks through a relay that can
 * hand over open files (monitor-relay.c), and is built when it is first needed.
 */
import { execFile, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import path from "node:path";
import type { Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

type Json = Readonly<Record<string, unknown>>;
interface Waiter {
  readonly matches: (event: string, data: Json) => boolean;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}
/** Both directions of the monitor, and how to leave. */
export interface MonitorStream {
  readonly from: Readable;
  readonly to: Writable;
  close(): void;
}

const CONNECT_MS = 20_000;
const relaySource = path.join(path.dirname(fileURLToPath(import.meta.url)), "monitor-relay.c");

export class Monitor {
  readonly #stream: MonitorStream;
  readonly #answers: { resolve: (value: unknown) => void; reject: (error: Error) => void }[] = [];
  readonly #waiters = new Set<Waiter>();
  #text = "";

  constructor(stream: MonitorStream) {
    this.#stream = stream;
    stream.from.setEncoding("utf8");
    stream.from.on("data", (chunk: string) => this.#received(chunk));
    stream.from.on("error", () => undefined);
    stream.to.on("error", () => undefined);
    stream.from.on("close", () => this.#closed());
  }

  /** Connects as soon as QEMU listens, and takes it out of negotiation. `folder` keeps the relay. */
  static async connect(socket: string, folder: string, alive: () => boolean): Promise<Monitor> {
    const relay = path.join(folder, "monitor-relay");
    if (!existsSync(relay)) await promisify(execFile)("gcc", ["-O2", "-o", relay, relaySource]);
    const end = performance.now() + CONNECT_MS;
    while (!existsSync(socket)) {
      if (!alive()) throw new Error("QEMU ended before its monitor was there");
      if (performance.now() > end) throw new Error("QEMU makes no monitor");
      await sleep(5);
    }
    const child = spawn(relay, [socket], { stdio: ["pipe", "pipe", "inherit"] });
    const monitor = new Monitor({
      from: child.stdout,
      to: child.stdin,
      close: () => child.stdin.end(),
    });
    await monitor.execute("qmp_capabilities");
    return monitor;
  }

  execute(command: string, parameters?: Json): Promise<unknown> {
    return this.#send(command, parameters, "");
  }

  /** Hands over `file`, opened for writing and empty, under `name`. */
  async giveFile(file: string, name: string): Promise<void> {
    await this.#send("getfd", { fdname: name }, `@${file} `);
  }

  /** Resolves at the next event that `matches`. Call before what causes it. */
  next(matches: (event: string, data: Json) => boolean): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<undefined>();
    const waiter: Waiter = { matches, resolve: () => resolve(undefined), reject };
    this.#waiters.add(waiter);
    promise.catch(() => undefined);
    return promise.finally(() => this.#waiters.delete(waiter));
  }

  close(): void {
    this.#stream.close();
  }

  #send(command: string, parameters: Json | undefined, prefix: string): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#answers.push({ resolve, reject });
      const message = { execute: command, ...(parameters && { arguments: parameters }) };
      this.#stream.to.write(`${prefix}${JSON.stringify(message)}\n`);
    });
  }

  #received(chunk: string): void {
    const lines = (this.#text + chunk).split("\n");
    this.#text = lines.pop() ?? "";
    for (const line of lines) if (line.trim() !== "") this.#take(JSON.parse(line) as Json);
  }

  #take(message: Json): void {
    if (typeof message["event"] === "string") {
      const data = (message["data"] ?? {}) as Json;
      for (const waiter of this.#waiters) {
        if (waiter.matches(message["event"], data)) waiter.resolve();
      }
    } else if ("return" in message) this.#answers.shift()?.resolve(message["return"]);
    else if ("error" in message) {
      const { desc } = message["error"] as { desc?: string };
      this.#answers.shift()?.reject(new Error(`QEMU refused: ${desc ?? "?"}`));
    }
  }

  #closed(): void {
    const error = new Error("The monitor was closed");
    for (const { reject } of this.#answers.splice(0)) reject(error);
    for (const { reject } of this.#waiters) reject(error);
  }
}
