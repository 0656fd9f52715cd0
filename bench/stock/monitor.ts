/** A small client of QEMU's monitor (QMP), for the stock side alone. */
import { createConnection, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

type Json = Readonly<Record<string, unknown>>;
interface Waiter {
  readonly matches: (event: string, data: Json) => boolean;
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

const CONNECT_MS = 20_000;

export class Monitor {
  readonly #socket: Socket;
  readonly #answers: { resolve: (value: unknown) => void; reject: (error: Error) => void }[] = [];
  readonly #waiters = new Set<Waiter>();
  #text = "";

  private constructor(socket: Socket) {
    this.#socket = socket;
    socket.setEncoding("utf8");
    socket.on("data", (chunk: string) => this.#received(chunk));
    socket.on("error", () => undefined);
    socket.on("close", () => this.#closed());
  }

  /** Connects as soon as QEMU listens, and takes it out of negotiation. */
  static async connect(path: string, alive: () => boolean): Promise<Monitor> {
    const end = performance.now() + CONNECT_MS;
    for (;;) {
      try {
        const monitor = new Monitor(await connected(path));
        await monitor.execute("qmp_capabilities");
        return monitor;
      } catch (error) {
        if (!alive()) throw new Error("QEMU ended before its monitor answered", { cause: error });
        if (performance.now() > end) throw error;
        await sleep(5);
      }
    }
  }

  execute(command: string, parameters?: Json): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#answers.push({ resolve, reject });
      const message = { execute: command, ...(parameters && { arguments: parameters }) };
      this.#socket.write(JSON.stringify(message));
    });
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
    this.#socket.destroy();
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

function connected(path: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = createConnection(path);
    socket.once("connect", () => resolve(socket));
    socket.once("error", reject);
  });
}
