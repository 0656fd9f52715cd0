/** Files inside, written and read through the link. */
import { describe, expect, test } from "vitest";
import { refuses } from "../refusal.ts";
import { all, failing, pattern, pieces } from "./byte-source.ts";
import { DEADLINE_MS, type GuestLinkRig } from "./rig.ts";

export function fileTests(rig: GuestLinkRig): void {
  describe("files", () => {
    test.each([0, 1, 65_536, 65_537, 5 * 1024 * 1024])(
      "%i bytes written are read",
      async (size) => {
        const link = await rig.letOut();
        const path = `${rig.subject.folder}/size-${size}`;
        const bytes = pattern(size);
        await link.writeFile(
          path,
          { user: rig.subject.user, mode: 0o640, size },
          pieces(bytes, 40_000),
        );
        const { facts, bytes: read } = await link.readFile(path, rig.subject.user);
        expect(facts).toMatchObject({ kind: "file", size });
        expect(facts.mode & 0o777).toBe(0o640);
        expect(Math.abs(facts.mtimeMs - Date.now())).toBeLessThan(120_000);
        expect(Buffer.concat(await all(read)).equals(bytes)).toBe(true);
        expect(await link.stat(path, rig.subject.user)).toEqual(facts);
        link.close("test");
      },
    );

    test("attributes come with the file, replace those of before, and are told in its folder", async () => {
      const link = await rig.letOut();
      const { user, folder } = rig.subject;
      const path = `${folder}/attributes`;
      const write = (attributes?: Record<string, string>) =>
        link.writeFile(path, { user, mode: 0o644, size: 1, attributes }, pieces(pattern(1), 1));
      const attributes = { "e2b.one": "1", "e2b.two": "ü \u0001", empty: "" };
      await write(attributes);
      expect((await link.stat(path, user)).attributes).toEqual(attributes);
      const entries = await Array.fromAsync(link.listFolder(folder, user));
      expect(entries.find(({ name }) => name === "attributes")?.attributes).toEqual(attributes);
      expect((await link.readFile(path, user)).facts.attributes).toEqual(attributes);
      await write();
      expect(await link.stat(path, user)).not.toHaveProperty("attributes");
      await write({ large: "x".repeat(3_000) });
      expect((await link.stat(path, user)).attributes?.["large"]).toHaveLength(3_000);
      link.close("test");
    });

    test("content that looks like the link's own magic survives", async () => {
      const link = await rig.letOut();
      const magic = Buffer.from("\x89PERDURE-RESYNC\n", "latin1");
      const bytes = Buffer.concat([
        magic,
        Buffer.alloc(70_000),
        magic,
        magic,
        magic.subarray(0, 15),
      ]);
      const path = `${rig.subject.folder}/magic`;
      const options = { user: rig.subject.user, mode: 0o600, size: bytes.length };
      await link.writeFile(path, options, pieces(bytes, bytes.length));
      const { bytes: read } = await link.readFile(path, rig.subject.user);
      expect(Buffer.concat(await all(read)).equals(bytes)).toBe(true);
      link.close("test");
    });

    test("too short, too long or broken off leaves the target as it was", async () => {
      const link = await rig.letOut();
      const path = `${rig.subject.folder}/kept`;
      await rig.write(link, "kept", "before");
      const options = { user: rig.subject.user, mode: 0o600, size: 100_000 };
      await refuses(link.writeFile(path, options, pieces(pattern(99_999), 9_999)), "size_mismatch");
      await refuses(
        link.writeFile(path, options, pieces(pattern(100_001), 9_999)),
        "size_mismatch",
      );
      const broken = link.writeFile(path, options, failing(pattern(50_000)));
      await expect(broken).rejects.toThrow("The source broke");
      const { bytes } = await link.readFile(path, rig.subject.user);
      expect(Buffer.concat(await all(bytes)).toString()).toBe("before");
      link.close("test");
    });

    test("what is wrong with a path is said", async () => {
      const link = await rig.letOut();
      const { user, folder } = rig.subject;
      await refuses(link.stat("relative", user), "bad_request");
      await refuses(link.stat(`${folder}/../x`, user), "bad_request");
      await refuses(link.stat(`/${"x".repeat(5000)}`, user), "bad_request");
      await refuses(link.stat(`${folder}/none`, user), "path_not_found");
      await refuses(link.readFile(`${folder}/none`, user), "path_not_found");
      await refuses(link.readFile(folder, user), "path_is_directory");
      await refuses(rig.write(link, "none/f", "x"), "path_not_found");
      await refuses(link.stat(folder, "nobody-of-that-name"), "user_not_found");
      expect((await link.stat(folder, user)).kind).toBe("directory");
      link.close("test");
    });

    test("a reader that leaves in the middle leaves the link whole", async () => {
      const link = await rig.letOut();
      const path = `${rig.subject.folder}/large`;
      const size = 3_000_000;
      const options = { user: rig.subject.user, mode: 0o600, size };
      await link.writeFile(path, options, pieces(pattern(size), 65_536));
      for (let i = 0; i < 5; i++) {
        const { bytes } = await link.readFile(path, rig.subject.user);
        for await (const piece of bytes) if (piece.length > 0) break;
      }
      await link.info(DEADLINE_MS);
      link.close("test");
    });
  });
}
