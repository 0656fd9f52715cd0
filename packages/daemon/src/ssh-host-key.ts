/**
 * SSH host keys as OpenSSH keeps them: format `openssh-key-v1`, unencrypted (PROTOCOL.key of OpenSSH), Ed25519
 * (RFC 8709).
 */
import { generateKeyPairSync, randomBytes } from "node:crypto";

export interface SshHostKey {
  /** Contents of `ssh_host_ed25519_key`. */
  readonly secret: string;
  /** Of `ssh_host_ed25519_key.pub`. */
  readonly open: string;
}

const KEY_TYPE = "ssh-ed25519";
/** Of the cipher "none". */
const BLOCK_BYTES = 8;
const LINE_CHARACTERS = 70;

export function makeSshHostKey(comment: string): SshHostKey {
  const { x = "", d = "" } = generateKeyPairSync("ed25519").privateKey.export({ format: "jwk" });
  const [open, seed] = [Buffer.from(x, "base64url"), Buffer.from(d, "base64url")];
  const openBlob = Buffer.concat([text(KEY_TYPE), text(open)]);
  // The same number twice tells whoever decrypts a key that it was the right passphrase.
  const check = randomBytes(4);
  const pair = text(Buffer.concat([seed, open]));
  const secretPart = Buffer.concat([check, check, openBlob, pair, text(comment)]);
  const [cipher, derivation, salt, keys] = [text("none"), text("none"), text(""), number(1)];
  const file = Buffer.concat([
    Buffer.from("openssh-key-v1\0"),
    ...[cipher, derivation, salt, keys, text(openBlob)],
    text(Buffer.concat([secretPart, padding(secretPart.length)])),
  ]);
  return {
    secret: [
      "-----BEGIN OPENSSH PRIVATE KEY-----",
      ...lines(file.toString("base64")),
      "-----END OPENSSH PRIVATE KEY-----",
      "",
    ].join("\n"),
    open: `${KEY_TYPE} ${openBlob.toString("base64")} ${comment}\n`,
  };
}

function number(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

function text(value: string | Buffer): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([number(bytes.length), bytes]);
}

/** 1, 2, 3 and so on, up to a whole block. */
function padding(length: number): Buffer {
  return Buffer.from(Array.from({ length: -length & (BLOCK_BYTES - 1) }, (_, i) => i + 1));
}

function lines(base64: string): string[] {
  return base64.match(new RegExp(`.{1,${LINE_CHARACTERS}}`, "g")) ?? [];
}
