/** The host's end of the probe guest: see probe-guest.c. */
import { randomBytes } from "node:crypto";
import { connect, type Socket } from "node:net";
import type { TestGuest } from "../contract/substrate/subject.ts";

const DEADLINE_MS = 60_000;

export class ProbeGuest implements TestGuest {
  readonly #socket: Socket;
  #received = Buffer.alloc(0);
  #wake: () => void = () => undefined;

  /** Connects and reads from now on, as whoever loads device state must. */
  constructor(linkPath: string) {
    this.#socket = connect(linkPath);
    this.#socket.on("error", () => undefined);
    this.#socket.on("data", (chunk: Buffer) => {
      this.#received = Buffer.concat([this.#received, chunk]);
      this.#wake();
    });
  }

  async ready(): Promise<void> {
    const nonce = randomBytes(16);
    const frame = Buffer.alloc(48);
    frame.write("\x89PERDURE-RESYNC\n", "latin1");
    nonce.copy(frame, 16);
    frame.writeUInt32LE(1, 32);
    this.#socket.write(frame);
    await this.#until(() => {
      const at = this.#received.indexOf(nonce);
      if (at < 0) this.#received = this.#received.subarray(-64);
      if (at < 0 || this.#received.length < at + 32) return null;
      this.#received = this.#received.subarray(at + 32);
      return true;
    });
  }

  hold(bytes: number, seed: number): Promise<string> {
    return this.#ask(`hold ${bytes} ${seed}`);
  }

  held(): Promise<string> {
    return this.#ask("sum");
  }

  writeDisk(offset: number, bytes: number, seed: number): Promise<string> {
    return this.#ask(`write ${offset} ${bytes} ${seed}`);
  }

  readDisk(offset: number, bytes: number): Promise<string> {
    return this.#ask(`read ${offset} ${bytes}`);
  }

  async clocks(): Promise<{ monotonicMs: number; bootMs: number }> {
    const [monotonicMs = NaN, bootMs = NaN] = (await this.#ask("clocks")).split(" ").map(Number);
    return { monotonicMs, bootMs };
  }

  async ticks(): Promise<number> {
    return Number(await this.#ask("ticks"));
  }

  /** Writes so much to the console as fast as it can. */
  async floodConsole(bytes: number): Promise<void> {
    await this.#ask(`flood-console ${bytes}`);
  }

  /** Sends a command that is not answered, or not now. */
  say(command: string): void {
    this.#socket.write(`${command}\n`);
  }

  end(how: "reset" | "shutdown" | "panic"): void {
    this.say(how);
  }

  close(): void {
    this.#socket.destroy();
  }

  async #ask(command: string): Promise<string> {
    this.say(command);
    const line = await this.#until(() => {
      const end = this.#received.indexOf(10);
      if (end < 0) return null;
      const text = this.#received.subarray(0, end).toString("latin1");
      this.#received = this.#received.subarray(end + 1);
      return text;
    });
    if (!line.startsWith("ok")) throw new Error(`The guest answered "${line}" to "${command}"`);
    return line.slice(3);
  }

  async #until<T>(look: () => T | null): Promise<T> {
    const end = performance.now() + DEADLINE_MS;
    for (;;) {
      const found = look();
      if (found !== null) return found;
      if (performance.now() > end) throw new Error("The guest does not answer");
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, 100);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }
}
