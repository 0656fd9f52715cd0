/** A guest whose every frame a test writes by hand: for what no honest guest would send. */
import { duplexPair, type Duplex } from "node:stream";
import type { Clock } from "../../core/ports/clock.ts";
import { FieldWriter } from "../field.ts";
import { encodeFrame, FrameParser, frameType, u16, u32, type FrameType } from "../frame.ts";
import { hostClock } from "../host-clock.ts";
import { StreamGuestLink } from "../link.ts";
import { GREETING_BYTES, resyncMagic, syncedMagic } from "../resync.ts";

export interface HostFrame {
  readonly type: FrameType;
  readonly stream: number;
  readonly payload: Buffer;
}

export class RawGuest {
  readonly link: StreamGuestLink;
  readonly socket: Duplex;
  /** What the host sent after RESYNC, in order. */
  readonly frames: HostFrame[] = [];
  /** Answers RESYNC by itself; switch off before `sync` to test that. */
  answersResync = true;
  /** The version of the protocol that it answers RESYNC with. */
  version = 3;
  /** The newest RESYNC. */
  greeting: Buffer | undefined;
  #parser = new FrameParser((type, stream, payload) => {
    this.frames.push({ type, stream, payload: Buffer.from(payload) });
    this.#notice();
  });
  #received = Buffer.alloc(0);
  #notice: () => void = () => undefined;

  constructor(clock: Clock = hostClock) {
    const [host, guest] = duplexPair();
    this.socket = guest;
    guest.on("data", (chunk: Buffer) => this.#take(chunk));
    guest.on("error", () => undefined);
    this.link = new StreamGuestLink(host, clock);
  }

  /** A link that is synchronised and let out. */
  static async open(clock?: Clock): Promise<RawGuest> {
    const guest = new RawGuest(clock);
    await guest.link.sync(1, 10_000);
    guest.link.letOut();
    return guest;
  }

  send(type: FrameType, stream: number, ...parts: readonly Uint8Array[]): void {
    this.write(encodeFrame(type, stream, ...parts));
  }

  write(bytes: Uint8Array): void {
    if (!this.socket.destroyed) this.socket.write(bytes);
  }

  respond(stream: number, status = 0, fields = new FieldWriter()): void {
    this.send(frameType.response, stream, u16(status), fields.finish());
  }

  end(stream: number, status = 0, fields = new FieldWriter()): void {
    this.send(frameType.end, stream, u16(status), fields.finish());
  }

  window(stream: number, bytes: number): void {
    this.send(frameType.window, stream, u32(bytes));
  }

  /** DATA as ATTACH has it. */
  output(stream: number, offset: number, bytes: Uint8Array, channel = 1): void {
    const header = Buffer.alloc(16);
    header[0] = channel;
    header.writeBigUInt64LE(BigInt(offset), 8);
    this.send(frameType.data, stream, header, bytes);
  }

  /** The SYNCED that answers the greeting. */
  synced(change: (synced: Buffer) => void = () => undefined): Buffer {
    const greeting = this.greeting ?? Buffer.alloc(GREETING_BYTES);
    const nonceAndEpoch = [greeting.subarray(16, 32), u32(this.version), greeting.subarray(36, 40)];
    const synced = Buffer.concat([syncedMagic, ...nonceAndEpoch, Buffer.alloc(8)]);
    change(synced);
    return synced;
  }

  /** The first frame of this type from the `from`th on, as soon as it is there. */
  async frame(type: FrameType, from = 0): Promise<HostFrame> {
    for (;;) {
      const found = this.frames.slice(from).find((frame) => frame.type === type);
      if (found !== undefined) return found;
      await new Promise<void>((resolve) => {
        this.#notice = resolve;
      });
    }
  }

  /** RESYNC may come again as long as it has not been answered; frames follow the answer. */
  #take(chunk: Buffer): void {
    this.#received = Buffer.concat([this.#received, chunk]);
    while (this.#received.subarray(0, resyncMagic.length).equals(resyncMagic)) {
      if (this.#received.length < GREETING_BYTES) return;
      this.greeting = this.#received.subarray(0, GREETING_BYTES);
      this.#received = this.#received.subarray(GREETING_BYTES);
      if (this.answersResync) this.write(this.synced());
    }
    const frames = this.#received;
    this.#received = Buffer.alloc(0);
    this.#parser.push(frames);
  }
}
