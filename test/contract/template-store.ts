/**
 * The suite of port TemplateStore (packages/daemon/src/core/ports/template-store.ts): it holds for
 * every implementation. Call it from a test file with a way to open stores over the same folders.
 */
import { readFile, stat, writeFile } from "node:fs/promises";
import type { Digest } from "@perdure/protocol";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type {
  TemplateDraft,
  TemplateStore,
} from "../../packages/daemon/src/core/ports/template-store.ts";
import { DISK_BYTES, newAgentId, sampleBase, sampleDraft } from "./checkpoint-store-sample.ts";

export interface TemplateFolders {
  /** Opens one more store over the same folders, as another process would. */
  open(): Promise<TemplateStore>;
  dispose(): Promise<void>;
}

export function templateStoreContract(
  implementation: string,
  makeFolders: () => Promise<TemplateFolders>,
): void {
  describe(`TemplateStore: ${implementation}`, () => {
    let folders: TemplateFolders;
    let store: TemplateStore;
    beforeEach(async () => {
      folders = await makeFolders();
      store = await folders.open();
    });
    afterEach(() => folders.dispose());

    const key = "4f".repeat(32) as Digest;
    const { substrate } = sampleDraft(newAgentId());
    const base = sampleBase(9);
    const devices = new Uint8Array(Buffer.from("devices of a template"));
    const boot = async (draft: TemplateDraft) => {
      await writeFile(draft.basePath, base, { flag: "wx" });
      return { substrate, devices };
    };

    it("answers null for what was never built", async () => {
      expect(await store.open("default", key)).toBeNull();
    });

    it("gives back base, devices, layer and facts of what was built", async () => {
      let layerId: string | undefined;
      await store.build(key, DISK_BYTES, async (draft) => {
        layerId = draft.layer?.id;
        const empty = await readFile(draft.layer?.path ?? "");
        expect(empty.readBigUInt64BE(24)).toBe(BigInt(DISK_BYTES));
        await writeFile(draft.layer?.path ?? "", Buffer.alloc(200_000, 3));
        return await boot(draft);
      });
      const template = await store.open("default", key);
      expect(template).toMatchObject({ key, substrate, devices, layer: { id: layerId } });
      expect(base.equals(await readFile(template?.base.path ?? ""))).toBe(true);
      expect(await readFile(template?.layer?.path ?? "")).toEqual(Buffer.alloc(200_000, 3));
      expect(await store.open("default", key)).toEqual(template);
      expect(await (await folders.open()).open("default", key)).toEqual(template);
    });

    it("leaves zero pages of the base as holes", async () => {
      await store.build(key, null, boot);
      const template = await store.open("default", key);
      const { blocks, size } = await stat(template?.base.path ?? "");
      expect(size).toBe(base.length);
      expect(blocks * 512).toBeLessThan(9 * 1024 * 1024);
    });

    it("has no layer for a shape without a disk", async () => {
      await store.build(key, null, async (draft) => {
        expect(draft.layer).toBeNull();
        return await boot(draft);
      });
      expect(await store.open("default", key)).toMatchObject({ layer: null });
    });

    it("builds once for several builders at a time; the others wait and find it", async () => {
      const other = await folders.open();
      let boots = 0;
      let open = 0;
      const slowly = async (draft: TemplateDraft) => {
        boots++;
        expect(++open).toBe(1);
        await new Promise((resolve) => setTimeout(resolve, 200));
        open--;
        return await boot(draft);
      };
      await Promise.all([store, other, store].map((one) => one.build(key, null, slowly)));
      expect(boots).toBe(1);
      expect(await other.open("default", key)).not.toBeNull();
    });

    it("leaves nothing of a boot that fails, and builds at the next call", async () => {
      const failing = async (draft: TemplateDraft) => {
        await boot(draft);
        throw new Error("the guest never answered");
      };
      await expect(store.build(key, DISK_BYTES, failing)).rejects.toMatchObject({
        code: "template_failed",
        message: expect.stringContaining("the guest never answered") as string,
      });
      expect(await store.open("default", key)).toBeNull();
      await store.build(key, DISK_BYTES, boot);
      expect(await store.open("default", key)).not.toBeNull();
    });

    it("serves several tenants and several stores at once", async () => {
      await store.build(key, DISK_BYTES, boot);
      const other = await folders.open();
      const found = await Promise.all(
        [store, other, store, other].map((one, i) => one.open(i < 2 ? "default" : "acme", key)),
      );
      expect(new Set(found.map((template) => template?.base.digest)).size).toBe(1);
      expect(found[0]).toEqual(found[1]);
      expect(found[2]).toEqual(found[3]);
    });

    it("refuses a base that changed after it was built", async () => {
      await store.build(key, null, boot);
      const template = await store.open("default", key);
      const path = template?.base.path ?? "";
      const bytes = await readFile(path);
      bytes[123_456] = (bytes[123_456] ?? 0) ^ 1;
      await writeFile(path, bytes);
      await expect(store.open("default", key)).rejects.toMatchObject({
        code: "checkpoint_digest_mismatch",
        details: { part: "base" },
      });
    });

    it("forgets the templates of one image, whoever took them over, and no other", async () => {
      const image = "1a".repeat(32) as Digest;
      const other = "2b".repeat(32) as Digest;
      const keys = ["5a", "5b", "5c"].map((pair) => pair.repeat(32) as Digest);
      const [one = key, two = key, third = key] = keys;
      await store.build(one, null, boot, image);
      await store.build(two, DISK_BYTES, boot, image);
      await store.build(third, null, boot, other);
      await store.build(key, null, boot);
      const taken = await store.open("default", one);
      await store.open("default", third);
      expect(await store.forget(image)).toContain(taken?.base.digest);
      for (const gone of [one, two]) {
        expect(await store.open("default", gone)).toBeNull();
        expect(await (await folders.open()).open("default", gone)).toBeNull();
      }
      for (const left of [third, key]) expect(await store.open("default", left)).not.toBeNull();
      expect(await store.forget(image)).toEqual([]);
      await store.build(one, null, boot, image);
      expect((await store.open("default", one))?.devices).toEqual(devices);
    });
  });
}
