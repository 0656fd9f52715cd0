/** CONNECT of the fake guest. */
import { duplexPair } from "node:stream";
import type { Fields } from "../field.ts";
import { status, tag } from "../operation.ts";
import { carryPair } from "./fake-carry.ts";
import { FakeFailure } from "./fake-file.ts";
import type { FakeStream } from "./fake-port.ts";
import type { FakeInside } from "./fake-state.ts";

const PORT_MAX = 65_535;

export function connect(guest: FakeInside, stream: FakeStream, fields: Fields): void {
  const port = fields.number(tag.port);
  if (port < 1 || port > PORT_MAX) throw new FakeFailure(status.badRequest, "That is no port");
  const listener = guest.listeners.get(port);
  if (listener === undefined) throw new FakeFailure(status.portRefused, "");
  const [ours, theirs] = duplexPair();
  carryPair(stream, ours, theirs);
  listener(theirs);
}
