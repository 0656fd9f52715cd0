/**
 * Sealed file: a small part of a checkpoint (page map, device state), compressed and encrypted.
 *
 *   "PSF1" | salt 16 | GCM tag 16 | AES-256-GCM( zstd( body ) )
 *
 * Each file has a key of its own, HKDF-SHA-256 of the agent's key with the salt and a label that names
 * part, agent and checkpoint; it encrypts once, so the nonce is zero. A file moved to another agent,
 * checkpoint or part does not open.
 */
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from "node:crypto";
import { constants, zstdCompressSync, zstdDecompressSync } from "node:zlib";
import { Damage } from "./damage.ts";
import type { Part } from "./damage.ts";

const magic = Buffer.from("PSF1", "latin1");
const saltBytes = 16;
const tagBytes = 16;
const headerBytes = magic.length + saltBytes + tagBytes;
const nonce = new Uint8Array(12);

export interface SealLabel {
  readonly part: Part & ("page-map" | "devices");
  readonly agent: string;
  readonly checkpoint: string;
}

/** A fresh key for one purpose, from the agent's key. */
export function deriveKey(
  agentKey: Uint8Array,
  salt: Uint8Array,
  purpose: string,
): Uint8Array<ArrayBuffer> {
  return new Uint8Array(hkdfSync("sha256", agentKey, salt, `perdure.1 ${purpose}`, 32));
}

function sealKey(agentKey: Uint8Array, salt: Uint8Array, label: SealLabel): Uint8Array {
  return deriveKey(agentKey, salt, `${label.part} ${label.agent} ${label.checkpoint}`);
}

export function seal(
  agentKey: Uint8Array,
  label: SealLabel,
  body: Uint8Array,
): Uint8Array<ArrayBuffer> {
  const salt = randomBytes(saltBytes);
  const cipher = createCipheriv("aes-256-gcm", sealKey(agentKey, salt, label), nonce);
  const packed = zstdCompressSync(body, { params: { [constants.ZSTD_c_compressionLevel]: 3 } });
  const text = cipher.update(packed);
  cipher.final();
  const file = new Uint8Array(headerBytes + text.length);
  file.set(magic);
  file.set(salt, magic.length);
  file.set(cipher.getAuthTag(), magic.length + saltBytes);
  file.set(text, headerBytes);
  return file;
}

/** @throws Damage where the file is not what was sealed under this label, or its body is over `bytesMax` */
export function unseal(
  agentKey: Uint8Array,
  label: SealLabel,
  file: Uint8Array,
  bytesMax: number,
): Uint8Array<ArrayBuffer> {
  const bytes = Buffer.from(file.buffer, file.byteOffset, file.byteLength);
  if (bytes.length < headerBytes || !bytes.subarray(0, magic.length).equals(magic)) {
    throw new Damage(label.part, "format", `its ${label.part} is not a sealed file`);
  }
  const salt = bytes.subarray(magic.length, magic.length + saltBytes);
  const decipher = createDecipheriv("aes-256-gcm", sealKey(agentKey, salt, label), nonce);
  decipher.setAuthTag(bytes.subarray(magic.length + saltBytes, headerBytes));
  const packed = decipher.update(bytes.subarray(headerBytes));
  try {
    decipher.final();
  } catch {
    throw new Damage(
      label.part,
      "authentication",
      `its ${label.part} was not sealed for this agent and checkpoint`,
    );
  }
  try {
    return new Uint8Array(zstdDecompressSync(packed, { maxOutputLength: bytesMax }));
  } catch {
    throw new Damage(
      label.part,
      "format",
      `its ${label.part} does not decompress within its limit`,
    );
  }
}
