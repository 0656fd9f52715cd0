/**
 * Turns what QEMU and the kernel tell about a VM process into machine events.
 *
 * - I1 Events that end a machine (`reset`, `shutdown`, `panic`, `exited`) happen at most once each and
 *   are told to listeners that come later. `io-error` is told to late ones while the VM waits for room.
 * - I2 A VM process that breaks the monitor's protocol, or closes it while it lives, is ended.
 * - I3 A reboot, a panic without a driver for it, and a triple fault all arrive as a reset; the console
 *   tells a panic apart. Both are the guest's own word, and neither grants it anything.
 */
import type { MachineEvent } from "../../core/ports/substrate.ts";
import type { ConsoleTail } from "./console-tail.ts";
import { isRecord, type QmpClient, type QmpEvent } from "./qmp.ts";

export interface WatchedProcess {
  readonly qmp: QmpClient;
  readonly console: ConsoleTail;
  /** Resolves when the process is gone, with how. Ends it first where the monitor went away alone. Does not fail. */
  gone(monitorEnd: string): Promise<string>;
  /** Keeps the event that ended the machine for a later daemon: reading the console emptied it. */
  remember(event: MachineEvent): Promise<void>;
  recall(): Promise<MachineEvent | null>;
}

export class MachineWatch {
  readonly #watched: WatchedProcess;
  readonly #listeners = new Set<(event: MachineEvent) => void>();
  readonly #happened: MachineEvent[] = [];
  #waitsForRoom: MachineEvent | null = null;
  #diskError = "";
  #stopsOfOurs = 0;
  #quiet = false;

  constructor(watched: WatchedProcess) {
    this.#watched = watched;
    const undo = watched.qmp.onEvent((event) => this.#onQmp(event));
    void watched.qmp.ended.then(async ({ kind, detail }) => {
      undo();
      if (kind === "closed") return;
      this.#tell({ kind: "exited", detail: await watched.gone(detail) });
    });
  }

  /** The event that ended the machine, if one did. */
  get end(): MachineEvent | undefined {
    return this.#happened[0];
  }

  onEvent(listener: (event: MachineEvent) => void): () => void {
    this.#listeners.add(listener);
    const earlier = [
      ...this.#happened,
      ...(this.#waitsForRoom === null ? [] : [this.#waitsForRoom]),
    ];
    for (const event of earlier) listener(event);
    return () => this.#listeners.delete(listener);
  }

  /** No more events: the machine is being ended or let go on purpose. */
  silence(): void {
    this.#quiet = true;
    this.#listeners.clear();
  }

  /** Runs a command that stops the CPUs, whose STOP event is therefore no news. */
  async stopping<T>(work: () => Promise<T>): Promise<T> {
    this.#stopsOfOurs++;
    try {
      return await work();
    } finally {
      this.#stopsOfOurs--;
    }
  }

  goesOn(): void {
    this.#waitsForRoom = null;
  }

  /** Finds out what happened while nobody was connected. */
  async catchUp(): Promise<void> {
    const earlier = await this.#watched.recall();
    if (earlier !== null) this.#tell(earlier);
    const status = await this.#status();
    if (earlier === null && status === "shutdown") {
      const text = await this.#watched.console.read();
      await this.#ended(
        text.includes("reboot: Restarting system") ? "guest-reset" : "guest-shutdown",
      );
    } else await this.#stopped(status);
  }

  #onQmp({ name, data }: QmpEvent): void {
    switch (name) {
      case "SHUTDOWN":
        void this.#ended(typeof data.reason === "string" ? data.reason : "");
        return;
      case "GUEST_PANICKED":
        void this.#panicked("");
        return;
      case "BLOCK_IO_ERROR":
        this.#diskError = `${text(data.operation)} failed: ${text(data.reason)}`;
        return;
      case "STOP":
        if (this.#stopsOfOurs === 0) void this.#status().then((status) => this.#stopped(status));
        return;
      default:
        return;
    }
  }

  async #ended(reason: string): Promise<void> {
    if (reason === "guest-shutdown") {
      this.#tell({ kind: "shutdown", detail: "The guest powered off" });
      return;
    }
    // A signal from the host, and the like: the process ends, which is told by itself.
    if (reason !== "guest-reset") return;
    const tail = await this.#watched.console.read();
    if (tail.includes("Kernel panic - not syncing")) await this.#panicked("");
    else this.#tell({ kind: "reset", detail: "The guest asked for a reboot" });
  }

  async #panicked(reason: string): Promise<void> {
    const tail = await this.#watched.console.read();
    this.#tell({ kind: "panic", detail: `${reason}${tail}` });
  }

  async #stopped(status: string): Promise<void> {
    switch (status) {
      case "io-error":
        this.#waitsForRoom = { kind: "io-error", detail: this.#diskError };
        for (const listener of [...this.#listeners]) listener(this.#waitsForRoom);
        return;
      case "internal-error":
        await this.#panicked("The accelerator could not go on with the guest.\n");
        return;
      case "guest-panicked":
        await this.#panicked("");
        return;
      default:
        return;
    }
  }

  async #status(): Promise<string> {
    const answer = await this.#watched.qmp.execute("query-status").catch(() => null);
    return isRecord(answer) ? text(answer.status) : "";
  }

  #tell(event: MachineEvent): void {
    if (this.#quiet || this.#happened.some(({ kind }) => kind === event.kind)) return;
    this.#happened.push(event);
    void this.#watched.remember(event);
    this.#waitsForRoom = null;
    for (const listener of [...this.#listeners]) listener(event);
  }
}

function text(value: unknown): string {
  return typeof value === "string" ? value.slice(0, 200) : "";
}
