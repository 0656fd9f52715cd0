/** The way out: connections that programs inside make to elsewhere, each taken from here. */
import { PerdureError } from "@perdure/protocol";
import type { Clock } from "../core/ports/clock.ts";
import type { OutboundConnection } from "../core/ports/guest-link.ts";
import { openConnection } from "./connect.ts";
import type { Epoch } from "./epoch.ts";
import { FieldWriter, type Fields } from "./field.ts";
import { operation, tag } from "./operation.ts";
import { RecordReader } from "./record-reader.ts";
import { violation } from "./violation.ts";

const NAME_BYTES_MAX = 253;
const NAME = /^[a-z0-9_-]+(\.[a-z0-9_-]+)*$/;
/** The guest answers at once. */
const CARRY_MS = 30_000;

/** Resolves once the guest holds connections for it. */
export async function openWayOut(
  epoch: Epoch,
  clock: Clock,
  deadlineMs: number,
): Promise<AsyncIterableIterator<OutboundConnection, undefined>> {
  const reader = new RecordReader<OutboundConnection>(() => epoch, clock, {
    op: operation.outbound,
    action: "open the way out",
    fields: () => new FieldWriter(),
    decode: (fields) => decodeConnection(fields, epoch, clock),
    endless: true,
    control: true,
    beginMs: deadlineMs,
    interrupted: (cause) =>
      new PerdureError("interrupted", `The way out ended: ${cause.message}`, { cause }),
  });
  await reader.begin();
  return reader;
}

function decodeConnection(fields: Fields, epoch: Epoch, clock: Clock): OutboundConnection {
  const connection = fields.number(tag.connection);
  const address = fields.number(tag.address);
  const port = fields.number(tag.port);
  const name = fields.has(tag.name) ? fields.string(tag.name, NAME_BYTES_MAX) : null;
  if (address > 0xffff_ffff) throw violation("a connection to no address");
  if (port < 1 || port > 65_535) throw violation("a connection to no port");
  if (name !== null && !NAME.test(name)) throw violation("a connection to no name");
  const to = `${name ?? dotted(address)}:${port}`;
  return {
    name,
    address: dotted(address),
    port,
    take: () =>
      openConnection(epoch, clock, {
        op: operation.carry,
        fields: new FieldWriter().number(tag.connection, connection),
        action: `take the connection to ${to}`,
        use: `use the connection to ${to}`,
        deadlineMs: CARRY_MS,
      }),
  };
}

function dotted(address: number): string {
  return [24, 16, 8, 0].map((shift) => (address >>> shift) & 0xff).join(".");
}
