/**
 * Records: lists of fields in a stream of DATA, each after its `length u32`. Where one frame ends has no
 * meaning.
 */
import { Fields } from "./field.ts";
import { violation } from "./violation.ts";

/** Two paths, or a name and a link's target, fit in. */
export const RECORD_BYTES_MAX = 16 * 1024;
const LENGTH_BYTES = 4;

/** Cuts what comes into records; holds less than one. */
export class RecordParser {
  #rest: Uint8Array = new Uint8Array();

  /**
   * The records that are whole now, each with its length before it, as `recordFields` takes them.
   * @throws `guest_protocol_violation` for one that is too long
   */
  push(piece: Uint8Array): Uint8Array[] {
    const bytes = this.#rest.length === 0 ? piece : Buffer.concat([this.#rest, piece]);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const records: Uint8Array[] = [];
    let at = 0;
    while (bytes.length - at >= LENGTH_BYTES) {
      const length = view.getUint32(at, true);
      if (length > RECORD_BYTES_MAX) throw violation(`a record of ${length} bytes`);
      const end = at + LENGTH_BYTES + length;
      if (end > bytes.length) break;
      records.push(bytes.subarray(at, end));
      at = end;
    }
    this.#rest = Uint8Array.from(bytes.subarray(at));
    return records;
  }

  /** @throws `guest_protocol_violation` where the stream ended in the middle of a record */
  end(): void {
    if (this.#rest.length > 0) throw violation("a record that is cut short");
  }
}

export function recordFields(record: Uint8Array): Fields {
  return Fields.parse(record.subarray(LENGTH_BYTES));
}
