/**
 * What keeps an export file from those who are not meant to read it: a key of the file's own, wrapped by a
 * key that scrypt makes of a passphrase. Everything but the header is encrypted with it: the agent's key,
 * memory, disk and image. A file in the clear has none.
 */
import { createCipheriv, createDecipheriv, randomBytes, scrypt } from "node:crypto";
import { promisify } from "node:util";
import { PerdureError } from "@perdure/protocol";
import { z } from "zod";

const derive = promisify<string, Uint8Array, number, object, Buffer>(scrypt);

const keyBytes = 32;
/** 128 MiB and a few tenths of a second for each guess. */
const cost = { n: 131_072, r: 8, p: 1 } as const;
const memoryMax = 256 * 1024 * 1024;
const purpose = Buffer.from("perdure.export.1 file key");

function hex(bytes: number) {
  return z.string().regex(new RegExp(`^[0-9a-f]{${2 * bytes}}$`));
}

export const protectionSchema = z.discriminatedUnion("kind", [
  z.strictObject({ kind: z.literal("clear") }),
  z.strictObject({
    kind: z.literal("passphrase"),
    kdf: z.literal("scrypt"),
    /** What a file may make its importer spend is bounded. */
    n: z.union([z.literal(32_768), z.literal(65_536), z.literal(cost.n)]),
    r: z.literal(cost.r),
    p: z.literal(cost.p),
    salt: hex(16),
    nonce: hex(12),
    tag: hex(16),
    key: hex(keyBytes),
  }),
]);
export type Protection = z.infer<typeof protectionSchema>;

export interface Protected {
  readonly protection: Protection;
  /** Null: in the clear. */
  readonly fileKey: Uint8Array | null;
}

export async function protect(passphrase: string | null): Promise<Protected> {
  if (passphrase === null) return { protection: { kind: "clear" }, fileKey: null };
  const fileKey = randomBytes(keyBytes);
  const salt = randomBytes(16);
  const nonce = randomBytes(12);
  const wrapping = await keyOf(passphrase, salt, cost.n);
  const cipher = createCipheriv("aes-256-gcm", wrapping, nonce).setAAD(purpose);
  const wrapped = cipher.update(fileKey);
  cipher.final();
  const protection: Protection = {
    kind: "passphrase",
    kdf: "scrypt",
    ...cost,
    salt: salt.toString("hex"),
    nonce: nonce.toString("hex"),
    tag: cipher.getAuthTag().toString("hex"),
    key: wrapped.toString("hex"),
  };
  return { protection, fileKey };
}

/** The file's key; null where it is in the clear. @throws `export_passphrase` */
export async function unprotect(
  protection: Protection,
  passphrase: string | null,
): Promise<Uint8Array | null> {
  if (protection.kind === "clear") return null;
  if (passphrase === null) {
    throw new PerdureError("export_passphrase", "The file is protected by a passphrase", {
      hint: "Give the passphrase that it was exported with (--passphrase-file).",
    });
  }
  const { salt, nonce, tag, key, n } = protection;
  const wrapping = await keyOf(passphrase, Buffer.from(salt, "hex"), n);
  const decipher = createDecipheriv("aes-256-gcm", wrapping, Buffer.from(nonce, "hex"));
  decipher.setAAD(purpose).setAuthTag(Buffer.from(tag, "hex"));
  const fileKey = decipher.update(Buffer.from(key, "hex"));
  try {
    decipher.final();
  } catch {
    throw new PerdureError("export_passphrase", "The file does not open with this passphrase", {
      hint: "Give the passphrase that it was exported with (--passphrase-file).",
    });
  }
  return fileKey;
}

/** Passphrases that look alike are the same one, however they were typed. */
function keyOf(passphrase: string, salt: Uint8Array, n: number): Promise<Buffer> {
  const { r, p } = cost;
  return derive(passphrase.normalize("NFC"), salt, keyBytes, { N: n, r, p, maxmem: memoryMax });
}
