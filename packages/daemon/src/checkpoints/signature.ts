/**
 * Manifest file: `{ key, manifest, signature }` as canonical JSON, and nothing but canonical: a file
 * in any other spelling is refused, so no bit of it can change unseen.
 *
 * The signature is Ed25519 over the canonical JSON of the manifest as it was written. It is checked
 * before the manifest is looked at.
 */
import { hash, sign, verify } from "node:crypto";
import type { KeyObject } from "node:crypto";
import { canonicalJson, parseCanonical, signedManifestSchema } from "@perdure/protocol";
import type { CanonicalValue, Digest, Manifest } from "@perdure/protocol";
import { Damage } from "./damage.ts";

/** Checked before a manifest is parsed. */
export const MANIFEST_BYTES_MAX = 1024 * 1024;

/** What tells whether a host signed something. */
export interface VerifyingKey {
  /** First 16 hex digits of the SHA-256 of the public key's SPKI form. */
  readonly id: string;
  readonly publicKey: KeyObject;
}

export interface SigningKey extends VerifyingKey {
  readonly privateKey: KeyObject;
}

export function signatureOf(key: SigningKey, text: string): string {
  return sign(null, Buffer.from(text), key.privateKey).toString("base64");
}

export function isSignedBy(key: VerifyingKey, text: string, signature: string): boolean {
  const bytes = Buffer.from(signature, "base64");
  if (bytes.toString("base64") !== signature) return false;
  return verify(null, Buffer.from(text), key.publicKey, bytes);
}

export interface SealedManifest {
  readonly file: Uint8Array<ArrayBuffer>;
  readonly digest: Digest;
}

export function encodeManifest(key: SigningKey, manifest: Manifest): SealedManifest {
  const text = canonicalJson(manifest);
  const signature = signatureOf(key, text);
  const file = canonicalJson({
    key: key.id,
    manifest: manifest as unknown as CanonicalValue,
    signature,
  });
  return { file: new Uint8Array(Buffer.from(file)), digest: hash("sha256", text) as Digest };
}

/** @throws Damage of part `manifest`: check `signature` where it is not this host's, `format` where it is and yet no manifest */
export function decodeManifest(
  key: VerifyingKey,
  file: Uint8Array,
): { readonly manifest: Manifest; readonly digest: Digest } {
  if (file.length > MANIFEST_BYTES_MAX)
    throw new Damage("manifest", "size", "its manifest is over 1 MiB");
  const text = Buffer.from(file.buffer, file.byteOffset, file.byteLength).toString("utf8");
  const signed = parse(text);
  const manifestText = canonicalJson(signed.manifest);
  if (signed.key !== key.id) {
    throw new Damage("manifest", "signature", "its manifest was not signed by this host's key");
  }
  if (!isSignedBy(key, manifestText, signed.signature)) {
    throw new Damage("manifest", "signature", "the signature of its manifest is wrong");
  }
  const parsed = signedManifestSchema.safeParse(signed);
  if (!parsed.success) {
    throw new Damage(
      "manifest",
      "format",
      "its manifest is signed but not of a version known here",
    );
  }
  return { manifest: parsed.data.manifest, digest: hash("sha256", manifestText) as Digest };
}

interface Signed {
  readonly key: string;
  readonly manifest: CanonicalValue;
  readonly signature: string;
}

/** The file as canonical JSON of the right form; everything else counts as not signed. */
function parse(text: string): Signed {
  const value = (parseCanonical(text) ?? {}) as { readonly [name: string]: CanonicalValue };
  const { key, manifest, signature } = value;
  if (typeof key === "string" && typeof signature === "string" && manifest !== undefined) {
    return { key, manifest, signature };
  }
  throw new Damage("manifest", "signature", "its manifest is not a signed manifest");
}
