/** The way out of the fake guest: a program that connects gets one end of a pair of streams. */
import { duplexPair, type Duplex } from "node:stream";
import { FieldWriter } from "../field.ts";
import { status, tag } from "../operation.ts";
import { carryPair } from "./fake-carry.ts";
import { FakeFailure } from "./fake-file.ts";
import type { FakeStream } from "./fake-port.ts";
import { record, RecordQueue } from "./fake-record.ts";

type Pair = readonly [ours: Duplex, theirs: Duplex];

export interface FakeTarget {
  readonly name: string | null;
  /** As a number. */
  readonly address: number;
  readonly port: number;
}

/** Connections of programs that nobody has taken yet. */
export class FakeWayOut {
  #told: RecordQueue | null = null;
  #lastId = 0;
  readonly #waiting = new Map<number, Pair>();

  /** A program connects. Its end is destroyed where nobody holds the way out open. */
  dial({ name, address, port }: FakeTarget): Duplex {
    const [ours, theirs] = duplexPair();
    for (const end of [ours, theirs]) end.on("error", () => undefined);
    if (this.#told === null) {
      reset(theirs);
      return theirs;
    }
    const id = ++this.#lastId;
    this.#waiting.set(id, [ours, theirs]);
    const fields = new FieldWriter()
      .number(tag.connection, id)
      .number(tag.address, address)
      .number(tag.port, port);
    this.#told.push(record(name === null ? fields : fields.string(tag.name, name)));
    return theirs;
  }

  open(stream: FakeStream): void {
    if (this.#told !== null) throw new FakeFailure(status.badRequest, "It is open already");
    this.#told = new RecordQueue(stream);
    stream.onClose = () => {
      this.#told = null;
      for (const [, theirs] of this.#waiting.values()) reset(theirs);
      this.#waiting.clear();
    };
    stream.respond(status.ok, new FieldWriter(), false);
  }

  carry(stream: FakeStream, id: number): void {
    const pair = this.#waiting.get(id);
    if (pair === undefined) throw new FakeFailure(status.connectionReset, "It is gone");
    this.#waiting.delete(id);
    carryPair(stream, ...pair);
  }
}

function reset(peer: Duplex): void {
  peer.destroy(Object.assign(new Error("read ECONNRESET"), { code: "ECONNRESET" }));
}
