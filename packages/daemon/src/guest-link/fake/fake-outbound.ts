/** OUTBOUND and CARRY of the fake guest. */
import type { Fields } from "../field.ts";
import { tag } from "../operation.ts";
import type { FakeStream } from "./fake-port.ts";
import type { FakeInside } from "./fake-state.ts";

export function outbound(guest: FakeInside, stream: FakeStream): void {
  guest.wayOut.open(stream);
}

export function carry(guest: FakeInside, stream: FakeStream, fields: Fields): void {
  guest.wayOut.carry(stream, fields.number(tag.connection));
}
