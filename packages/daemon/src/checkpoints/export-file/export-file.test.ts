/** An agent's way through a file, byte for byte, between hosts that share nothing. */
import { createHash } from "node:crypto";
import { readFile, readdir, readlink, stat } from "node:fs/promises";
import { afterAll, afterEach, beforeEach, describe, expect, test } from "vitest";
import { wholeMemory } from "../../../../../test/contract/checkpoint-store-sample.ts";
import {
  ExportRig,
  agentsIn,
  devices,
  importInto,
  inPieces,
} from "../../../../../test/fixtures/export-rig.ts";
import { flipBit } from "../../../../../test/fixtures/flip-bit.ts";
import type { LocalCheckpointStore } from "../local/local-checkpoint-store.ts";
import { makeStoreHome } from "../local/store-home.ts";
import type { StoreHome } from "../local/store-home.ts";
import { WorkPool } from "../work/pool.ts";

const pool = new WorkPool();
afterAll(() => pool.close());
let rig: ExportRig;
let elsewhere: StoreHome;
let there: LocalCheckpointStore;

beforeEach(async () => {
  rig = await ExportRig.open(pool);
  elsewhere = await makeStoreHome(pool);
  there = await elsewhere.open({ findTemplateBase: () => Promise.resolve(null) });
});
afterEach(async () => {
  await there.close();
  await elsewhere.dispose();
  await rig.dispose();
});

describe("a file of an agent", () => {
  for (const passphrase of [null, "correct horse battery staple"]) {
    const kind = passphrase === null ? "in the clear" : "under a passphrase";
    test(`brings memory, devices, disk and image to another host, ${kind}`, async () => {
      const bytes = await rig.bytes({ passphrase });
      const opening = passphrase === null ? {} : { passphrase };
      const { agent, file, checkpoints } = await importInto(there, inPieces(bytes), opening);
      expect(checkpoints).toHaveLength(4);
      for (const [i, { id }] of rig.kept.entries()) {
        const opened = await there.open(agent, checkpoints[i] ?? id);
        const original = await rig.store.open(rig.agent, id);
        if (original.state === null) expect(opened.state).toBeNull();
        else {
          expect(opened.state?.devices).toEqual(devices);
          const memory = await wholeMemory(original);
          expect(memory.equals(await wholeMemory(opened))).toBe(true);
        }
        const layers = opened.manifest.disk.layers;
        expect(layers).toEqual(original.manifest.disk.layers);
      }
      for (const layer of rig.layers) {
        const path = there.layerPath(agent, layer);
        expect(await readFile(path)).toEqual(await readFile(rig.store.layerPath(rig.agent, layer)));
      }
      for (const role of ["kernel", "initramfs", "rootfs"] as const) {
        const [from, to] = [rig.image[role]?.path ?? "", file.image?.[role]?.path ?? ""];
        expect(await readFile(to)).toEqual(await readFile(from));
      }
      // Nothing of it needs the file, its key or its origin any more.
      await there.collect(agent, checkpoints, []);
      await rig.store.removeAgent(rig.agent);
      await wholeMemory(await there.open(agent, checkpoints[2] ?? rig.newest.id));
    });
  }

  test("holds nothing of memory, disk or key in the clear where it has a passphrase", async () => {
    const bytes = await rig.bytes({ passphrase: "secret words" });
    const key = await rig.home.keyRing.agentKey(rig.home.folder(rig.agent).key, rig.agent);
    const open = await rig.bytes();
    const kernel = (await readFile(rig.image.kernel.path)).subarray(0, 64);
    for (const secret of [Buffer.from(key), kernel, Buffer.from("a root file system")]) {
      expect(open.includes(secret)).toBe(true);
      expect(bytes.includes(secret)).toBe(false);
    }
    expect(bytes.includes("secret words")).toBe(false);
  });

  test("does not open without its passphrase or with another, and nothing is left", async () => {
    const bytes = await rig.bytes({ ...rig.diskAlone, passphrase: "right" });
    for (const opening of [{}, { passphrase: "wrong" }, { passphrase: "" }]) {
      await expect(importInto(there, inPieces(bytes), opening)).rejects.toMatchObject({
        code: "export_passphrase",
      });
    }
    expect(await agentsIn(elsewhere)).toEqual([]);
  });

  test("takes its passphrase as it reads, however it was typed", async () => {
    const bytes = await rig.bytes({ ...rig.diskAlone, passphrase: "caf\u00e9" });
    await importInto(there, inPieces(bytes), { passphrase: "cafe\u0301" });
  });

  test("stores neither zeros nor what compresses", async () => {
    const bytes = await rig.bytes();
    // Two bases of 128 MiB, mostly holes, and a disk image of 3 MiB of them.
    expect(bytes.length).toBeLessThan(16 * 1024 * 1024);
    const { agent } = await importInto(there, inPieces(bytes));
    const bases = elsewhere.folder(agent).bases;
    const { memory } = await rig.store.manifest(rig.agent, rig.newest.id);
    const stats = await stat(`${bases}/${memory?.base.digest}`);
    expect(stats.size).toBe(128 * 1024 * 1024);
    expect(stats.blocks * 512).toBeLessThan(32 * 1024 * 1024);
  });

  test("of one checkpoint holds that one and what it needs", async () => {
    const [one] = rig.kept;
    if (one === undefined) throw new Error("The rig is empty");
    const bytes = await rig.bytes({ checkpoints: [one], head: one.id, image: null });
    const { agent, file } = await importInto(there, inPieces(bytes));
    expect(file.contents).toMatchObject({ head: one.id, image: null, agent: { name: "a1" } });
    const files = await elsewhere.files(agent);
    expect(files.filter((name) => name.startsWith("layers/"))).toHaveLength(1);
    expect(files.filter((name) => name.startsWith("bases/"))).toHaveLength(1);
  });

  test("names the host that signed it", async () => {
    const { publicKey } = rig.home.keyRing.signing;
    const spki = publicKey.export({ type: "spki", format: "der" });
    const fingerprint = createHash("sha256").update(spki).digest("hex");
    const file = await rig.export(rig.diskAlone);
    expect(file.signer).toBe(fingerprint);
    const bytes = Buffer.concat(await Array.fromAsync(file.bytes));
    expect((await there.openImport(inPieces(bytes), null)).contents.signer).toBe(fingerprint);
  });

  test("is written anew under a key of the new agent's own, and signed by the new host", async () => {
    const { agent, checkpoints } = await importInto(there, inPieces(await rig.bytes()));
    const key = await elsewhere.keyRing.agentKey(elsewhere.folder(agent).key, agent);
    const before = await rig.home.keyRing.agentKey(rig.home.folder(rig.agent).key, rig.agent);
    expect(Buffer.from(key).equals(Buffer.from(before))).toBe(false);
    const packs = (await rig.home.files(rig.agent)).filter((name) => name.startsWith("packs/"));
    await there.collect(agent, checkpoints, []);
    const files = await elsewhere.files(agent);
    for (const name of packs) expect(files).not.toContain(name);
    expect(files.some((name) => name.startsWith(".import"))).toBe(false);
    await there.manifest(agent, checkpoints[0] ?? rig.newest.id);
  });
});

describe("what is on the importing host already", () => {
  test("is not stored again: layers and bases of the origin get a second name", async () => {
    const bytes = await rig.bytes();
    const { agent } = await importInto(rig.store, inPieces(bytes), { storeImage: false });
    for (const layer of rig.layers) {
      const [one, two] = await Promise.all([
        stat(rig.store.layerPath(rig.agent, layer)),
        stat(rig.store.layerPath(agent, layer)),
      ]);
      expect(two.ino).toBe(one.ino);
    }
    const { memory } = await rig.store.manifest(rig.agent, rig.newest.id);
    const own = memory?.base.digest;
    if (own === undefined) throw new Error("There is no base");
    const [one, two] = await Promise.all([
      stat(rig.store.ownBasePath(rig.agent, own)),
      stat(rig.store.ownBasePath(agent, own)),
    ]);
    expect(two.ino).toBe(one.ino);
    const files = await rig.home.files(agent);
    expect(files.filter((name) => name.startsWith(".import/kernel"))).toEqual([]);
    // The other base is the template's, whose folder is not the agent's to name.
    expect(files.filter((name) => name.startsWith("bases/"))).toHaveLength(2);
  });

  test("is used by its digest only: a file of the same name that is another is left alone", async () => {
    const bytes = await rig.bytes();
    const [layer] = rig.layers;
    if (layer === undefined) throw new Error("There is no layer");
    const path = rig.store.layerPath(rig.agent, layer);
    await flipBit(path, 4000);
    const { agent } = await importInto(rig.store, inPieces(bytes));
    const copy = rig.store.layerPath(agent, layer);
    expect((await stat(copy)).ino).not.toBe((await stat(path)).ino);
    expect(await readFile(copy)).not.toEqual(await readFile(path));
    // What the file says of it is no verdict about the other agent's layer.
    await flipBit(path, 4000);
    await rig.store.open(rig.agent, rig.newest.id);
  });

  test("the template's base is stood on where it is the same", async () => {
    const [one] = rig.kept;
    if (one === undefined) throw new Error("The rig is empty");
    const { memory } = await rig.store.manifest(rig.agent, one.id);
    const digest = memory?.base.digest;
    if (digest === undefined) throw new Error("There is no base");
    const path = `${rig.home.home}/base`;
    const bytes = await rig.bytes({ checkpoints: [one], head: one.id });
    const { agent, checkpoints } = await importInto(rig.store, inPieces(bytes), {
      templateBase: { kind: "template", digest, path },
    });
    const { manifest } = await rig.store.open(agent, checkpoints[0] ?? one.id);
    expect(manifest.memory?.base.kind).toBe("template");
    expect((await rig.home.files(agent)).filter((name) => name.startsWith("bases/"))).toEqual([]);
  });
});

describe("an export", () => {
  test("holds what was there when it was opened, whatever is removed before it is read", async () => {
    const file = await rig.export();
    const memory = await rig.memoryOf(rig.newest.id);
    await rig.store.removeAgent(rig.agent);
    const { agent, checkpoints } = await importInto(there, file.bytes);
    const opened = await there.open(agent, checkpoints[2] ?? rig.newest.id);
    expect(memory.equals(await wholeMemory(opened))).toBe(true);
  });

  test("breaks off where a file is damaged, in place of handing the damage on", async () => {
    const [layer] = rig.layers;
    if (layer === undefined) throw new Error("There is no layer");
    await flipBit(rig.store.layerPath(rig.agent, layer), 70_000);
    await expect(rig.bytes()).rejects.toMatchObject({
      code: "checkpoint_digest_mismatch",
      details: { part: "layer", check: "digest" },
    });
  });

  test("is refused where a file is missing or its key is gone", async () => {
    await rig.home.keyRing.destroyAgentKey(rig.home.folder(rig.agent).key);
    await expect(rig.export()).rejects.toMatchObject({ code: "checkpoint_key_missing" });
    // A disk alone needs no key.
    await rig.bytes(rig.diskAlone);
    const [layer] = rig.layers;
    if (layer !== undefined) await rig.store.removeLayer(rig.agent, layer);
    await expect(rig.export(rig.diskAlone)).rejects.toMatchObject({
      code: "checkpoint_digest_mismatch",
      details: { part: "layer", check: "presence" },
    });
  });

  test("lets go of its files, whether it is read to its end, left or never begun", async () => {
    const ours = async (): Promise<number> => {
      const links = (await readdir("/proc/self/fd")).map((fd) => readlink(`/proc/self/fd/${fd}`));
      const paths = await Promise.allSettled(links);
      return paths.filter(
        (path) => path.status === "fulfilled" && path.value.startsWith(rig.home.home),
      ).length;
    };
    const before = await ours();
    const whole = await rig.export();
    expect(await ours()).toBeGreaterThan(before + 8);
    await Array.fromAsync(whole.bytes);
    expect(await ours()).toBe(before);
    const left = await rig.export();
    for await (const piece of left.bytes) if (piece.length > 0) break;
    expect(await ours()).toBe(before);
    const unread = await rig.export();
    await unread.close();
    await unread.close();
    expect(await ours()).toBe(before);
  });

  test("is refused of a manifest that is not the published one", async () => {
    const [one] = rig.kept;
    if (one === undefined) throw new Error("The rig is empty");
    const forged = { ...one, digest: "0".repeat(64) as typeof one.digest };
    await expect(rig.export({ checkpoints: [forged], head: one.id })).rejects.toMatchObject({
      code: "checkpoint_digest_mismatch",
    });
  });
});
