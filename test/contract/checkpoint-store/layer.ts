/** Layers of a disk. */
import { readFile, stat, writeFile } from "node:fs/promises";
import { expect, it } from "vitest";
import { DISK_BYTES, newLayerId, sampleDraft } from "../checkpoint-store-sample.ts";
import { quiet, type CheckpointStoreRig } from "./rig.ts";

export function layerTests(rig: CheckpointStoreRig): void {
  it("makes an empty qcow2 layer of the disk's size without a backing file", async () => {
    const layer = newLayerId();
    await rig.store.createLayer(rig.agent, layer, DISK_BYTES);
    const header = await readFile(rig.store.layerPath(rig.agent, layer));
    expect(header.subarray(0, 4)).toEqual(Buffer.from([0x51, 0x46, 0x49, 0xfb]));
    expect(header.readUInt32BE(4)).toBe(3);
    expect(header.readBigUInt64BE(8)).toBe(0n);
    expect(header.readBigUInt64BE(24)).toBe(BigInt(DISK_BYTES));
    await rig.store.removeLayer(rig.agent, layer);
    await rig.store.removeLayer(rig.agent, layer);
    await expect(stat(rig.store.layerPath(rig.agent, layer))).rejects.toMatchObject({
      code: "ENOENT",
    });
  });

  it("links a template's layer without counting it as the agent's", async () => {
    const from = rig.opened.path("template.qcow2");
    await writeFile(from, Buffer.alloc(1024 * 1024, 5));
    const before = await rig.store.storedBytes(rig.agent);
    const layer = newLayerId();
    await rig.store.linkLayer(rig.agent, layer, from);
    await rig.store.linkLayer(rig.agent, layer, from);
    expect(await readFile(rig.store.layerPath(rig.agent, layer))).toEqual(await readFile(from));
    expect(await rig.store.storedBytes(rig.agent)).toBe(before);
    const draft = sampleDraft(rig.agent, { layers: [layer] });
    const { manifest } = await rig.store.write(draft, null, quiet);
    expect(manifest.disk.layers).toMatchObject([{ id: layer, bytes: 1024 * 1024 }]);
  });

  it("records a top layer anew where a cancelled sleep let the VM write on", async () => {
    const layer = newLayerId();
    await rig.store.createLayer(rig.agent, layer, DISK_BYTES);
    const cancelled = sampleDraft(rig.agent, { layers: [layer] });
    const before = await rig.store.write(cancelled, rig.state(new Map()), quiet);
    await writeFile(rig.store.layerPath(rig.agent, layer), Buffer.alloc(300_000, 9));
    const slept = sampleDraft(rig.agent, { layers: [layer] });
    const after = await rig.store.write(slept, rig.state(new Map()), quiet);
    expect(after.manifest.disk.layers).not.toEqual(before.manifest.disk.layers);
    await rig.store.open(rig.agent, slept.checkpoint);
    await expect(rig.store.open(rig.agent, cancelled.checkpoint)).rejects.toMatchObject({
      code: "checkpoint_digest_mismatch",
      details: { part: "layer" },
    });
  });
}
