/**
 * Keys of one data directory, in `<home>/keys`: the host key, which wraps the agents' keys, and the
 * host's signing key. Each is made once, atomically; none is ever logged or part of a message.
 *
 * An agent's key lies wrapped in the agent's folder: "PKW1" | nonce 12 | tag 16 | AES-256-GCM of 32
 * bytes, bound to the agent's id. Destroying that file makes every checkpoint of the agent unreadable.
 */
import {
  createCipheriv,
  createDecipheriv,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  hash,
  hkdfSync,
  randomBytes,
} from "node:crypto";
import { mkdir, open, readFile, stat, unlink } from "node:fs/promises";
import { dirname, join } from "node:path";
import { PerdureError } from "@perdure/protocol";
import type { AgentId } from "@perdure/protocol";
import { createOnce, syncFolder } from "./durable.ts";
import type { SigningKey } from "./signature.ts";

const keyBytes = 32;
const wrapMagic = Buffer.from("PKW1", "latin1");
const wrappedBytes = wrapMagic.length + 12 + 16 + keyBytes;

export class KeyRing {
  readonly signing: SigningKey;
  readonly #hostKey: Uint8Array;

  constructor(hostKey: Uint8Array, signing: SigningKey) {
    this.#hostKey = hostKey;
    this.signing = signing;
  }

  /** 32 bytes for one purpose alone, the same as long as the host key is. */
  derive(purpose: string): Uint8Array {
    return new Uint8Array(hkdfSync("sha256", this.#hostKey, "", purpose, keyBytes));
  }

  /** Makes the agent's key unless there is one. Durable. */
  async createAgentKey(path: string, agent: AgentId): Promise<void> {
    const nonce = randomBytes(12);
    const cipher = createCipheriv("aes-256-gcm", this.#hostKey, nonce).setAAD(Buffer.from(agent));
    const wrapped = cipher.update(randomBytes(keyBytes));
    cipher.final();
    await createOnce(path, Buffer.concat([wrapMagic, nonce, cipher.getAuthTag(), wrapped]));
  }

  /** @throws `checkpoint_key_missing` where the key was destroyed or cannot be unwrapped */
  async agentKey(path: string, agent: AgentId): Promise<Uint8Array<ArrayBuffer>> {
    const file = await readFile(path).catch((error: unknown) => {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
      throw error;
    });
    if (file === null) throw keyMissing(agent, "is gone");
    if (file.length !== wrappedBytes || !file.subarray(0, 4).equals(wrapMagic)) {
      throw keyMissing(agent, "is damaged");
    }
    const decipher = createDecipheriv("aes-256-gcm", this.#hostKey, file.subarray(4, 16));
    decipher.setAAD(Buffer.from(agent)).setAuthTag(file.subarray(16, 32));
    const key = decipher.update(file.subarray(32));
    try {
      decipher.final();
    } catch {
      throw keyMissing(agent, "was not wrapped for it by this host's key");
    }
    return new Uint8Array(key);
  }

  /** Overwrites the key where it lies, then unlinks it. Durable. Idempotent. */
  async destroyAgentKey(path: string): Promise<void> {
    const file = await open(path, "r+").catch((error: unknown) => {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
      throw error;
    });
    if (file === null) return;
    try {
      await file.write(randomBytes(wrappedBytes), 0, wrappedBytes, 0);
      await file.sync();
    } finally {
      await file.close();
    }
    await unlink(path);
    await syncFolder(dirname(path));
  }
}

function keyMissing(agent: AgentId, how: string): PerdureError {
  return new PerdureError(
    "checkpoint_key_missing",
    `Cannot read checkpoints of agent "${agent}": its key ${how}`,
    {
      hint: "Memory that was kept under it cannot be brought back; the disk can: recover from the disk.",
      details: { agent },
    },
  );
}

/** Opens the keys of `home`, and makes them where this is the first time. */
export async function openKeyRing(home: string): Promise<KeyRing> {
  const folder = join(home, "keys");
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const hostKey = await keyFile(join(folder, "host.key"), () => randomBytes(keyBytes));
  if (hostKey.length !== keyBytes) throw unusable(join(folder, "host.key"));
  const signingPath = join(folder, "host-signing.pem");
  const pem = await keyFile(signingPath, () =>
    Buffer.from(generateKeyPairSync("ed25519").privateKey.export({ type: "pkcs8", format: "pem" })),
  );
  try {
    const privateKey = createPrivateKey(pem);
    const publicKey = createPublicKey(privateKey);
    const spki = publicKey.export({ type: "spki", format: "der" });
    return new KeyRing(hostKey, { id: hash("sha256", spki).slice(0, 16), privateKey, publicKey });
  } catch {
    throw unusable(signingPath);
  }
}

async function keyFile(path: string, make: () => Buffer): Promise<Buffer> {
  const before = await readFile(path).catch(() => null);
  if (before === null) await createOnce(path, make());
  if (((await stat(path)).mode & 0o077) !== 0) {
    throw new PerdureError("host_not_ready", `Cannot use "${path}": others may read it`, {
      hint: `Run: chmod 600 "${path}"`,
    });
  }
  return before ?? (await readFile(path));
}

function unusable(path: string): PerdureError {
  return new PerdureError("host_not_ready", `Cannot use "${path}": it is not a key`, {
    hint: "Put the file back from a copy; without it no checkpoint of this data directory opens.",
  });
}
