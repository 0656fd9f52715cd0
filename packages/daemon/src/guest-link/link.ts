/**
 * The guest link over any byte stream: what the port `GuestLink` promises, put together.
 *
 * I4: `letOut` opens the host's side of the boundary; before it only `Control` gets through.
 */
import type { Duplex } from "node:stream";
import type { ProcessView } from "@perdure/protocol";
import type { Clock } from "../core/ports/clock.ts";
import type {
  FileChange,
  FileFacts,
  FileWriteOptions,
  FolderEntry,
  GuestActivity,
  GuestClock,
  GuestExec,
  GuestIdentity,
  GuestInfo,
  GuestLink,
  GuestMemory,
  GuestStats,
  GuestTimer,
  HookResult,
  OutboundConnection,
  OutputPiece,
  PortConnection,
  TerminalSize,
} from "../core/ports/guest-link.ts";
import { connectPort } from "./connect.ts";
import { Connection } from "./connection.ts";
import { Control } from "./control.ts";
import { readFile, statFile, writeFile } from "./file.ts";
import { openFolder } from "./folder.ts";
import { OutputReader } from "./output.ts";
import { makeFolder, movePath, removePath } from "./path-operation.ts";
import { exec, forgetProcess, listProcesses, resizeTerminal, sendSignal } from "./process.ts";
import { StdinStreams } from "./stdin.ts";
import { openWayOut } from "./outbound.ts";
import { openWatch } from "./watch.ts";

export class StreamGuestLink implements GuestLink {
  readonly closed: Promise<string>;
  readonly #connection: Connection;
  readonly #clock: Clock;
  readonly #stdin: StdinStreams;

  /** Reads and discards from `socket` at once. */
  constructor(socket: Duplex, clock: Clock) {
    this.#connection = new Connection(socket, clock);
    this.#clock = clock;
    this.#stdin = new StdinStreams(clock);
    this.closed = this.#connection.closed;
  }

  get droppedFrames(): number {
    return this.#connection.droppedFrames;
  }

  sync(generation: number, deadlineMs: number): Promise<void> {
    return this.#connection.sync(generation, deadlineMs);
  }

  letOut(): void {
    this.#connection.epoch.allowUsers();
  }

  close(reason: string): void {
    this.#connection.close(reason);
  }

  hold(): void {
    this.#connection.hold();
  }

  release(): void {
    this.#connection.release();
  }

  async info(deadlineMs: number): Promise<GuestInfo> {
    return this.#control.info(deadlineMs);
  }

  async setClock(deadlineMs: number): Promise<GuestClock> {
    return this.#control.setClock(deadlineMs);
  }

  async useClockSource(name: string): Promise<void> {
    return this.#control.useClockSource(name);
  }

  async shortenFrozenWaits(): Promise<number> {
    return this.#control.shortenFrozenWaits();
  }

  async addEntropy(bytes: Uint8Array): Promise<void> {
    return this.#control.addEntropy(bytes);
  }

  async flush(deadlineMs: number): Promise<void> {
    return this.#control.flush(deadlineMs);
  }

  async freeze(deadlineMs: number): Promise<void> {
    return this.#control.freeze(deadlineMs);
  }

  async thaw(): Promise<void> {
    return this.#control.thaw();
  }

  async setGeneration(generation: number, json: string): Promise<void> {
    return this.#control.setGeneration(generation, json);
  }

  async setIdentity(identity: GuestIdentity): Promise<void> {
    return this.#control.setIdentity(identity);
  }

  async runHooks(deadlineMs: number): Promise<readonly HookResult[]> {
    return this.#control.runHooks(deadlineMs);
  }

  stats(only: "memory"): Promise<GuestMemory>;
  stats(): Promise<GuestStats>;
  async stats(only?: "memory"): Promise<GuestStats | GuestMemory> {
    return only === undefined ? this.#control.stats() : this.#control.memory();
  }

  async timers(): Promise<readonly GuestTimer[]> {
    return this.#control.timers();
  }

  async activity(): Promise<GuestActivity> {
    return this.#control.activity();
  }

  async dropCaches(deadlineMs: number): Promise<void> {
    return this.#control.dropCaches(deadlineMs);
  }

  async shutdown(deadlineMs: number): Promise<void> {
    return this.#control.shutdown(deadlineMs);
  }

  async exec(request: GuestExec): Promise<{ process: number; pid: number }> {
    return exec(this.#connection.epoch, this.#clock, request);
  }

  async processes(): Promise<readonly ProcessView[]> {
    return listProcesses(this.#connection.epoch, this.#clock);
  }

  attach(process: number, offset: number): AsyncIterable<OutputPiece> {
    return new OutputReader(() => this.#connection.epoch, this.#clock, process, offset);
  }

  async writeStdin(process: number, bytes: Uint8Array, end: boolean): Promise<void> {
    return this.#stdin.write(this.#connection.epoch, process, bytes, end);
  }

  async signal(process: number, signal: number, tree: boolean, deadlineMs: number): Promise<void> {
    const target = { process, signal, tree };
    return sendSignal(this.#connection.epoch, this.#clock, target, deadlineMs);
  }

  async forget(process: number): Promise<void> {
    return forgetProcess(this.#connection.epoch, this.#clock, process);
  }

  async resizeTerminal(process: number, size: TerminalSize): Promise<void> {
    return resizeTerminal(this.#connection.epoch, this.#clock, process, size);
  }

  async stat(path: string, user: string): Promise<FileFacts> {
    return statFile(this.#connection.epoch, this.#clock, path, user);
  }

  async readFile(
    path: string,
    user: string,
    range?: { readonly offset: number; readonly length?: number },
  ): Promise<{ facts: FileFacts; bytes: AsyncIterable<Uint8Array> }> {
    return readFile(this.#connection.epoch, this.#clock, path, user, range);
  }

  async writeFile(
    path: string,
    options: FileWriteOptions,
    bytes: AsyncIterable<Uint8Array>,
  ): Promise<void> {
    return writeFile(this.#connection.epoch, this.#clock, path, options, bytes);
  }

  listFolder(path: string, user: string): AsyncIterable<FolderEntry> {
    return openFolder(() => this.#connection.epoch, this.#clock, path, user);
  }

  async makeFolder(
    path: string,
    options: { user: string; mode: number; parents: boolean },
  ): Promise<void> {
    return makeFolder(this.#connection.epoch, this.#clock, path, options);
  }

  async movePath(
    from: string,
    to: string,
    options: { user: string; replace: boolean },
  ): Promise<void> {
    return movePath(this.#connection.epoch, this.#clock, from, to, options);
  }

  async removePath(path: string, options: { user: string; recursive: boolean }): Promise<void> {
    return removePath(this.#connection.epoch, this.#clock, path, options);
  }

  watch(path: string, options: { user: string; recursive: boolean }): AsyncIterable<FileChange> {
    return openWatch(() => this.#connection.epoch, this.#clock, path, options);
  }

  async connect(port: number, deadlineMs: number): Promise<PortConnection> {
    return connectPort(this.#connection.epoch, this.#clock, port, deadlineMs);
  }

  async openWayOut(
    deadlineMs: number,
  ): Promise<AsyncIterableIterator<OutboundConnection, undefined>> {
    return openWayOut(this.#connection.epoch, this.#clock, deadlineMs);
  }

  get #control(): Control {
    return new Control(this.#connection.epoch, this.#clock);
  }
}
