/**
 * The first bytes of a disk layer that comes from elsewhere. VM processes open layers under bounds of their
 * own and are told the whole chain; but a layer that names other files, or is encrypted, was not made here.
 *
 * qcow2, version 3, big-endian: magic 4 | version 4 | backing file offset 8, size 4 | cluster bits 4 |
 * disk size 8 | encryption 4 | … | incompatible features 8 at 72 (bit 0 dirty, 2 external data file).
 */
import { agentLimits } from "@perdure/protocol";
import { invalid } from "./invalid.ts";

export const LAYER_HEADER_BYTES = 104;
const magic = 0x514649fb;
/** A VM that died with the layer open leaves it dirty; anything else changes how it is read. */
const dirty = 1n;

/** @throws `export_invalid` */
export function assertPlainLayer(head: Uint8Array): void {
  const view = Buffer.from(head.buffer, head.byteOffset, head.byteLength);
  const isPlain =
    view.length === LAYER_HEADER_BYTES &&
    view.readUInt32BE(0) === magic &&
    view.readUInt32BE(4) === 3 &&
    // Where layers were merged the name has a place, but no length.
    view.readUInt32BE(16) === 0 &&
    view.readBigUInt64BE(24) <= BigInt(agentLimits.diskBytesMax) &&
    view.readUInt32BE(32) === 0 &&
    (view.readBigUInt64BE(72) & ~dirty) === 0n;
  if (!isPlain) throw invalid("a layer is no disk layer as Perdure makes them");
}
