/**
 * Blocks of an export file: at most 1 MiB of content each.
 *
 *   codec 1 | zero: nothing more
 *           | raw, zstd: length of the text 4, little-endian | text | GCM tag 16 where the file is encrypted
 *
 * A block's number within the file is its nonce; codec, number and the file's header are authenticated with
 * it, so no block can take another's place. A block never decompresses to more than its place in the content.
 */
import { createCipheriv, createDecipheriv } from "node:crypto";
import { promisify } from "node:util";
import { constants, zstdCompress, zstdDecompress } from "node:zlib";
import { isZero } from "../content-digest.ts";
import { invalid } from "./invalid.ts";
import type { StreamReader } from "./stream-reader.ts";

const codecs = { zero: 0, raw: 1, zstd: 2 } as const;
const tagBytes = 16;
/** As for packs: less is not worth undoing. */
const savedShareMin = 16;

const compress = promisify(zstdCompress);
const decompress = promisify(zstdDecompress);

/** Encrypts the blocks of one file, in their order. Of a file in the clear there is none. */
export class BlockCipher {
  readonly #key: Uint8Array;
  readonly #header: Uint8Array;

  /** @param header digest of the file's header */
  constructor(key: Uint8Array, header: Uint8Array) {
    this.#key = key;
    this.#header = header;
  }

  seal(number: number, codec: number, text: Uint8Array): Buffer[] {
    const cipher = createCipheriv("aes-256-gcm", this.#key, nonceOf(number));
    cipher.setAAD(Buffer.concat([this.#header, Buffer.of(codec)]));
    const sealed = cipher.update(text);
    cipher.final();
    return [sealed, cipher.getAuthTag()];
  }

  /** @throws `export_invalid` */
  open(number: number, codec: number, text: Uint8Array, tag: Uint8Array): Buffer<ArrayBuffer> {
    const decipher = createDecipheriv("aes-256-gcm", this.#key, nonceOf(number));
    decipher.setAAD(Buffer.concat([this.#header, Buffer.of(codec)])).setAuthTag(tag);
    const opened = decipher.update(text);
    try {
      decipher.final();
    } catch (error) {
      throw invalid("one of its blocks was changed", error);
    }
    return opened;
  }
}

function nonceOf(number: number): Buffer {
  const nonce = Buffer.alloc(12);
  nonce.writeBigUInt64BE(BigInt(number), 4);
  return nonce;
}

/** The block as it lies in the file. `compressible`: whether it is worth a try. */
export async function encodeBlock(
  cipher: BlockCipher | null,
  number: number,
  content: Uint8Array,
  compressible: boolean,
): Promise<Buffer> {
  if (isZero(content)) return Buffer.of(codecs.zero);
  let codec: number = codecs.raw;
  let text = content;
  if (compressible) {
    const params = { [constants.ZSTD_c_compressionLevel]: 3 };
    const packed = await compress(content, { params });
    if (packed.length <= content.length - content.length / savedShareMin) {
      codec = codecs.zstd;
      text = packed;
    }
  }
  const head = Buffer.alloc(5);
  head[0] = codec;
  head.writeUInt32LE(text.length, 1);
  return Buffer.concat([head, ...(cipher === null ? [text] : cipher.seal(number, codec, text))]);
}

/** The content of the next block, which must be of `bytes`; null: zeros. @throws `export_invalid` */
export async function decodeBlock(
  cipher: BlockCipher | null,
  number: number,
  reader: StreamReader,
  bytes: number,
): Promise<Buffer<ArrayBuffer> | null> {
  const codec = (await reader.take(1))[0];
  if (codec === codecs.zero) return null;
  if (codec !== codecs.raw && codec !== codecs.zstd) throw invalid("a block has an unknown form");
  const length = (await reader.take(4)).readUInt32LE();
  const fits = codec === codecs.raw ? length === bytes : length > 0 && length < bytes;
  if (!fits) throw invalid("a block has a wrong length");
  let text = await reader.take(length);
  if (cipher !== null) text = cipher.open(number, codec, text, await reader.take(tagBytes));
  if (codec === codecs.raw) return text;
  try {
    const content = await decompress(text, { maxOutputLength: bytes });
    if (content.length === bytes) return content;
  } catch {
    // The same answer as for one that comes out shorter.
  }
  throw invalid("a block does not decompress to its length");
}
