/** Files that are no exports, or more than they say: refused as such, within bounds, and nothing is left. */
import { generateKeyPairSync, hash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { inspect } from "node:util";
import { zstdCompressSync } from "node:zlib";
import fc from "fast-check";
import { PerdureError } from "@perdure/protocol";
import type { Digest, Manifest } from "@perdure/protocol";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { newAgentId, newLayerId } from "../../../../../test/contract/checkpoint-store-sample.ts";
import {
  ExportRig,
  agentsIn,
  importInto,
  inPieces,
} from "../../../../../test/fixtures/export-rig.ts";
import { contentDigest } from "../content-digest.ts";
import type { LocalCheckpointStore } from "../local/local-checkpoint-store.ts";
import { makeStoreHome } from "../local/store-home.ts";
import type { StoreHome } from "../local/store-home.ts";
import { encodeManifest } from "../signature.ts";
import type { SigningKey } from "../signature.ts";
import { WorkPool } from "../work/pool.ts";
import { encodeHeader } from "./header.ts";
import type { ExportHeader } from "./header.ts";

const pool = new WorkPool();
let rig: ExportRig;
let elsewhere: StoreHome;
let there: LocalCheckpointStore;
/** Of the disk alone, without an image: a few KiB. */
let small: Buffer;

beforeAll(async () => {
  rig = await ExportRig.open(pool);
  elsewhere = await makeStoreHome(pool);
  there = await elsewhere.open({ findTemplateBase: () => Promise.resolve(null) });
  small = await rig.bytes({ ...rig.diskAlone, image: null });
  await importInto(there, inPieces(small));
});
beforeEach(async () => {
  for (const agent of await there.listAgents()) await there.removeAgent(agent);
});
afterAll(async () => {
  await there.close();
  await elsewhere.dispose();
  await rig.dispose();
  await pool.close();
});

const refusals = new Set(["export_invalid", "export_too_new", "export_passphrase"]);

/** The code that a file is refused with; nothing of it may be left. */
async function refusal(bytes: Uint8Array): Promise<string> {
  const error = await importInto(there, inPieces(bytes)).then(
    () => null,
    (caught: unknown) => caught,
  );
  if (error === null) return "none";
  expect(await agentsIn(elsewhere)).toEqual([]);
  return error instanceof PerdureError ? error.code : `no typed error: ${inspect(error)}`;
}

function changed(bytes: Buffer, at: number, change: (view: Buffer) => void): Buffer {
  const copy = Buffer.from(bytes);
  change(copy.subarray(at));
  return copy;
}

describe("a file that was changed", () => {
  test("is refused whichever bit flips and wherever it ends", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(
          fc.record({ kind: fc.constant("flip"), at: fc.nat(small.length * 8 - 1) }),
          fc.record({ kind: fc.constant("cut"), at: fc.nat(small.length - 1) }),
          // Nothing stands before the first byte that could be there twice.
          fc.record({
            kind: fc.constant("double"),
            at: fc.integer({ min: 1, max: small.length - 1 }),
          }),
          fc.record({ kind: fc.constant("lose"), at: fc.nat(small.length - 1) }),
        ),
        async ({ kind, at }) => {
          const mutated = {
            flip: () => {
              const copy = Buffer.from(small);
              copy[at >> 3] = (copy[at >> 3] ?? 0) ^ (1 << (at & 7));
              return copy;
            },
            cut: () => small.subarray(0, at),
            double: () =>
              Buffer.concat([small.subarray(0, at), small.subarray(Math.max(0, at - 9))]),
            lose: () => Buffer.concat([small.subarray(0, at), small.subarray(at + 1)]),
          }[kind as "flip"]();
          expect(refusals).toContain(await refusal(mutated));
        },
      ),
      { numRuns: 250 },
    );
  }, 120_000);

  test("is refused where the memory in it was changed, too", async () => {
    const [one] = rig.kept;
    if (one === undefined) throw new Error("The rig is empty");
    const bytes = await rig.bytes({ checkpoints: [one], head: one.id, image: null });
    // Past the header, where keys, packs and maps lie.
    const header = bytes.readUInt32LE(12) + 16;
    for (let i = 1; i <= 20; i++) {
      const at = header + Math.floor(((bytes.length - header - 1) * i) / 20);
      expect(await refusal(changed(bytes, at, (view) => (view[0] = (view[0] ?? 0) ^ 0x10)))).toBe(
        "export_invalid",
      );
    }
  }, 120_000);

  test("is refused where it was encrypted and a block was changed or moved", async () => {
    const bytes = await rig.bytes({ ...rig.diskAlone, image: null, passphrase: "x" });
    const header = bytes.readUInt32LE(12) + 16;
    const import_ = (file: Buffer) => importInto(there, inPieces(file), { passphrase: "x" });
    for (const at of [header + 20, bytes.length - 100]) {
      const file = changed(bytes, at, (view) => (view[0] = (view[0] ?? 0) ^ 1));
      await expect(import_(file)).rejects.toMatchObject({ code: "export_invalid" });
    }
    await import_(bytes);
  });

  test("of random bytes, of nothing, or of another kind is refused", async () => {
    for (const bytes of [
      Buffer.alloc(0),
      Buffer.from("PK\u0003\u0004 a zip"),
      Buffer.alloc(2_000_000, 0x55),
      Buffer.concat([small, Buffer.of(0)]),
      small.subarray(0, small.length - 1),
    ]) {
      expect(await refusal(bytes)).toBe("export_invalid");
    }
  });

  test("of a newer format is refused as such, before anything of it is read", async () => {
    const newer = changed(small, 8, (view) => view.writeUInt32LE(2)).subarray(0, 16);
    expect(await refusal(newer)).toBe("export_too_new");
    expect(await refusal(changed(small, 8, (view) => view.writeUInt32LE(0)))).toBe(
      "export_invalid",
    );
  });

  test("ends with its reader's own error where the uploader goes away", async () => {
    const leaving = (async function* () {
      yield await Promise.resolve(small.subarray(0, small.length / 2));
      throw new PerdureError("cancelled", "The uploader went away");
    })();
    await expect(importInto(there, leaving)).rejects.toMatchObject({ code: "cancelled" });
    expect(await agentsIn(elsewhere)).toEqual([]);
  });
});

/** A key of the attacker's own: whatever is signed with it is signed. */
const key: SigningKey = (() => {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const spki = publicKey.export({ type: "spki", format: "der" });
  return { id: hash("sha256", spki).slice(0, 16), publicKey, privateKey };
})();

interface Forgery {
  /** What the header says that it should not. */
  readonly header?: (header: ExportHeader) => unknown;
  readonly manifest?: (manifest: Manifest) => unknown;
  readonly manifestKey?: SigningKey;
  readonly copies?: number;
  /** Content after the header. */
  readonly content?: readonly Uint8Array[];
}

/** A file that is signed, and says what the forger wants it to say. */
async function forge(forgery: Forgery): Promise<Buffer> {
  const { head } = rig.diskAlone;
  const same = (value: unknown): unknown => value;
  const { header = same, manifest = same, manifestKey = key, copies = 1, content = [] } = forgery;
  const forged = manifest(await rig.store.manifest(rig.agent, head)) as Manifest;
  const text = Buffer.from(encodeManifest(manifestKey, forged).file).toString();
  const plain: ExportHeader = {
    format: "perdure.export",
    exportedAtMs: 1,
    agent: rig.request().agent,
    head,
    checkpoints: Array.from({ length: copies }, () => ({ manifest: text, name: null })),
    image: null,
    protection: { kind: "clear" },
    diskBytes: 0,
  };
  const { bytes } = encodeHeader(key, header(plain) as ExportHeader);
  const body = Buffer.concat([bytes, ...content]);
  return Buffer.concat([body, Buffer.from(hash("sha256", body), "hex")]);
}

const noDigest = "0".repeat(64);
const layerOf = (bytes: number, digest = noDigest, id: string = newLayerId()) => ({
  id,
  bytes,
  digest,
});
const withLayers =
  (...layers: unknown[]) =>
  (manifest: Manifest): unknown => ({ ...manifest, disk: { ...manifest.disk, layers } });
const ofAgent =
  (change: (agent: ExportHeader["agent"]) => unknown) =>
  (header: ExportHeader): unknown => ({ ...header, agent: change(header.agent) });

const otherKey = (): SigningKey => {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  return { id: key.id, publicKey, privateKey };
};

describe("a file that is signed, and hostile", () => {
  test("is whole but for its content where it is forged without a lie", async () => {
    const bytes = await forge({ content: [] });
    const { contents } = await there.openImport(inPieces(bytes), null);
    expect(contents.checkpoints).toHaveLength(1);
  });

  test.each<readonly [string, Forgery]>([
    ["manifests of another signer", { manifestKey: otherKey() }],
    ["manifests under another key's name", { manifestKey: { ...key, id: "0".repeat(16) } }],
    ["a checkpoint of another agent", { manifest: (m) => ({ ...m, agent: newAgentId() }) }],
    ["a checkpoint twice", { copies: 2 }],
    ["more checkpoints than the limit", { copies: 257 }],
    ["no checkpoint", { copies: 0 }],
    ["a layer that is larger than any", { manifest: withLayers(layerOf(2 ** 50)) }],
    ["a layer of no bytes", { manifest: withLayers(layerOf(0)) }],
    [
      "more layers than a VM takes",
      { manifest: withLayers(...Array.from({ length: 33 }, () => layerOf(100))) },
    ],
    ["a layer that leaves its folder", { manifest: withLayers(layerOf(100, noDigest, "../x")) }],
    ["a digest that leaves its folder", { manifest: withLayers(layerOf(100, "../../tmp/x")) }],
    ["devices without memory", { manifest: (m) => ({ ...m, devices: layerOf(5) }) }],
    ["a manifest of a later version", { manifest: (m) => ({ ...m, version: 2 }) }],
    ["a name that is none", { header: ofAgent((agent) => ({ ...agent, name: "../a" })) }],
    [
      "a size that no agent has",
      { header: ofAgent((agent) => ({ ...agent, shape: { ...agent.shape, cpus: 1000 } })) },
    ],
    ["a head that is not in it", { header: (h) => ({ ...h, head: `cp_${"0".repeat(26)}` }) }],
    ["a field that nobody knows", { header: (h) => ({ ...h, also: 1 }) }],
    ["a room that is none", { header: (h) => ({ ...h, diskBytes: -1 }) }],
    [
      "work that its passphrase would cost",
      {
        header: (h) => ({
          ...h,
          protection: {
            ...{ kind: "passphrase", kdf: "scrypt", n: 2 ** 30, r: 8, p: 1, key: noDigest },
            ...{ salt: "0".repeat(32), nonce: "0".repeat(24), tag: "0".repeat(32) },
          },
        }),
      },
    ],
  ])("is refused for %s", async (_title, forgery) => {
    expect(await refusal(await forge(forgery))).toBe("export_invalid");
  });

  test("is refused for a header that is longer than it may be, nested or not canonical", async () => {
    const long = Buffer.concat([small.subarray(0, 12), Buffer.of(0xff, 0xff, 0xff, 0x7f)]);
    expect(await refusal(long)).toBe("export_invalid");
    const text = small.subarray(16, 16 + small.readUInt32LE(12)).toString();
    for (const body of [
      "[".repeat(1_000_000),
      `${text} `,
      text.replace('"format"', '"format":"perdure.export","format"'),
      "null",
      "{}",
      "\ud800",
    ]) {
      const bytes = Buffer.from(body);
      const head = Buffer.alloc(4);
      head.writeUInt32LE(bytes.length);
      const file = Buffer.concat([small.subarray(0, 12), head, bytes, small.subarray(-500)]);
      expect(await refusal(file)).toBe("export_invalid");
    }
  });

  /** The header of an empty layer, as Perdure makes them. */
  const plainLayer = async (): Promise<Buffer> => {
    const [layer] = rig.layers;
    return readFile(rig.store.layerPath(rig.agent, layer ?? newLayerId()));
  };
  const raw = (bytes: Uint8Array): Buffer => {
    const head = Buffer.of(1, 0, 0, 0, 0);
    head.writeUInt32LE(bytes.length, 1);
    return Buffer.concat([head, bytes]);
  };
  const digestOfOne = (bytes: Uint8Array): Digest =>
    contentDigest(bytes.length, [hash("sha256", bytes, "buffer")]);

  test.each<readonly [string, (layer: Buffer) => Buffer]>([
    ["is no qcow2 file", () => Buffer.alloc(4096, 1)],
    ["is shorter than its header", (layer) => layer.subarray(0, 100)],
    [
      "names a backing file",
      (layer) => (layer.writeBigUInt64BE(4096n, 8), layer.writeUInt32BE(9, 16), layer),
    ],
    ["names a file for its data", (layer) => (layer.writeBigUInt64BE(4n, 72), layer)],
    ["is encrypted", (layer) => (layer.writeUInt32BE(2, 32), layer)],
    ["is of another version", (layer) => (layer.writeUInt32BE(2, 4), layer)],
    ["is larger than any disk", (layer) => (layer.writeBigUInt64BE(2n ** 60n, 24), layer)],
  ])("is refused for a layer with the right digest that %s", async (_title, change) => {
    const layer = change((await plainLayer()).subarray(0, 1_000_000));
    const manifest = withLayers(layerOf(layer.length, digestOfOne(layer)));
    const file = await forge({ manifest, content: [raw(layer)] });
    expect(await refusal(file)).toBe("export_invalid");
  });

  test("is refused for blocks that are none, too long, or grow beyond their place", async () => {
    const layer = (await plainLayer()).subarray(0, 65_536);
    const good = layerOf(layer.length, digestOfOne(layer));
    const manifest = withLayers(good);
    const packed = (bytes: Uint8Array): Buffer => {
      const block = raw(zstdCompressSync(bytes));
      block[0] = 2;
      return block;
    };
    const claim = Buffer.of(1, 0xff, 0xff, 0xff, 0xff);
    const unknown = raw(layer);
    unknown[0] = 7;
    for (const content of [
      packed(Buffer.alloc(256 * 1024 * 1024)),
      packed(Buffer.alloc(10)),
      claim,
      unknown,
      raw(layer.subarray(1)),
      Buffer.of(2, 5, 0, 0, 0, 1, 2, 3, 4, 5),
      Buffer.of(0),
    ]) {
      expect(await refusal(await forge({ manifest, content: [content] }))).toBe("export_invalid");
    }
    // The same way, told the truth, is an import.
    expect(await refusal(await forge({ manifest, content: [raw(layer)] }))).toBe("none");
  });
});
