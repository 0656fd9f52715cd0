/** Folders inside: listed, made, moved, removed. */
import { describe, expect, test } from "vitest";
import type { FolderEntry, GuestLink } from "../../../packages/daemon/src/core/ports/guest-link.ts";
import { refuses } from "../refusal.ts";
import { all } from "./byte-source.ts";
import { DEADLINE_MS, type GuestLinkRig } from "./rig.ts";

async function entries(link: GuestLink, path: string, user: string): Promise<FolderEntry[]> {
  const found: FolderEntry[] = [];
  for await (const entry of link.listFolder(path, user)) found.push(entry);
  return found.toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

export function folderTests(rig: GuestLinkRig): void {
  describe("folders", () => {
    test("what is in a folder is listed with its facts", async (context) => {
      rig.needs(context, "version-2");
      const link = await rig.letOut();
      const { user } = rig.subject;
      const folder = await rig.folder(link, "listed");
      await rig.write(link, "listed/a file", "four");
      await link.makeFolder(`${folder}/sub`, { user, mode: 0o711, parents: false });
      await rig.write(link, "listed/sub/deeper", "x");
      const found = await entries(link, folder, user);
      expect(found.map(({ name, kind }) => [name, kind])).toEqual([
        ["a file", "file"],
        ["sub", "directory"],
      ]);
      const [file] = found;
      const { name, linkTarget, ...facts } = file ?? expect.unreachable();
      expect(name).toBe("a file");
      expect(linkTarget).toBe(null);
      expect(facts).toEqual(await link.stat(`${folder}/a file`, user));
      expect(await entries(link, `${folder}/`, user)).toEqual(found);
      link.close("test");
    });

    test("an empty folder has no entries, and thousands come under back-pressure", async (context) => {
      rig.needs(context, "version-2");
      const link = await rig.letOut();
      const { user } = rig.subject;
      const folder = await rig.folder(link, "many");
      expect(await entries(link, folder, user)).toEqual([]);
      const names = Array.from({ length: 400 }, (_, i) => `${"n".repeat(200)}${i}`);
      for (const name of names) await rig.write(link, `many/${name}`, "");
      let count = 0;
      for await (const entry of link.listFolder(folder, user)) {
        expect(names).toContain(entry.name);
        if (++count % 50 === 0) await link.info(DEADLINE_MS);
      }
      expect(count).toBe(names.length);
      for await (const entry of link.listFolder(folder, user)) {
        expect(entry.kind).toBe("file");
        break;
      }
      await link.info(DEADLINE_MS);
      link.close("test");
    });

    test("what cannot be listed says why", async (context) => {
      rig.needs(context, "version-2");
      const link = await rig.letOut();
      const { user, folder } = rig.subject;
      await rig.write(link, "no-folder", "x");
      await refuses(entries(link, `${folder}/none`, user), "path_not_found");
      await refuses(entries(link, `${folder}/no-folder`, user), "path_not_folder");
      await refuses(entries(link, "relative", user), "bad_request");
      await refuses(entries(link, folder, "nobody-of-that-name"), "user_not_found");
      link.close("test");
    });

    test("a folder is made once, with parents as often as one likes", async (context) => {
      rig.needs(context, "version-2");
      const link = await rig.letOut();
      const { user } = rig.subject;
      const folder = await rig.folder(link, "made");
      const options = { user, mode: 0o750, parents: false };
      await link.makeFolder(`${folder}/one`, options);
      const facts = await link.stat(`${folder}/one`, user);
      expect(facts).toMatchObject({ kind: "directory" });
      expect(facts.mode & 0o777).toBe(0o750);
      expect(facts.uid).toBe((await link.stat(folder, user)).uid);
      await refuses(link.makeFolder(`${folder}/one`, options), "path_exists");
      await refuses(link.makeFolder(`${folder}/a/b/c`, options), "path_not_found");
      const deep = { ...options, parents: true };
      await link.makeFolder(`${folder}/a/b/c`, deep);
      await link.makeFolder(`${folder}/a/b/c/`, { ...deep, mode: 0o777 });
      expect((await link.stat(`${folder}/a/b`, user)).mode & 0o777).toBe(0o755);
      expect((await link.stat(`${folder}/a/b/c`, user)).mode & 0o777).toBe(0o750);
      await rig.write(link, "made/file", "x");
      await refuses(link.makeFolder(`${folder}/file`, deep), "path_exists");
      await refuses(link.makeFolder(`${folder}/file/below`, options), "path_not_found");
      expect((await entries(link, `${folder}/a/b`, user)).map(({ name }) => name)).toEqual(["c"]);
      link.close("test");
    });

    test("a path moves, and takes another's place only when told", async (context) => {
      rig.needs(context, "version-2");
      const link = await rig.letOut();
      const { user } = rig.subject;
      const folder = await rig.folder(link, "moved");
      const at = (name: string): string => `${folder}/${name}`;
      const kept = { user, replace: false };
      await rig.write(link, "moved/a", "first");
      await rig.write(link, "moved/b", "second");
      await refuses(link.movePath(at("a"), at("b"), kept), "path_exists");
      await refuses(link.movePath(at("none"), at("c"), kept), "path_not_found");
      await refuses(link.movePath(at("a"), at("none/c"), kept), "path_not_found");
      await link.movePath(at("a"), at("b"), { user, replace: true });
      const { bytes } = await link.readFile(at("b"), user);
      expect(Buffer.concat(await all(bytes)).toString()).toBe("first");
      await refuses(link.stat(at("a"), user), "path_not_found");
      await link.makeFolder(at("d/e"), { user, mode: 0o755, parents: true });
      await link.movePath(at("b"), at("d/e/f"), kept);
      await link.movePath(at("d"), at("g"), kept);
      expect((await link.stat(at("g/e/f"), user)).size).toBe(5);
      await refuses(link.movePath(at("g"), at("g/e/h"), kept), "bad_request");
      await link.makeFolder(at("empty"), { user, mode: 0o755, parents: false });
      const replacing = { user, replace: true };
      await refuses(link.movePath(at("empty"), at("g/e"), replacing), "path_not_empty");
      await refuses(link.movePath(at("g/e/f"), at("empty"), replacing), "path_is_directory");
      await refuses(link.movePath(at("empty"), at("g/e/f"), replacing), "path_not_folder");
      await link.movePath(at("g"), at("empty"), replacing);
      expect((await link.stat(at("empty/e/f"), user)).size).toBe(5);
      link.close("test");
    });

    test("a path is removed, a folder that is not empty only when told", async (context) => {
      rig.needs(context, "version-2");
      const link = await rig.letOut();
      const { user } = rig.subject;
      const folder = await rig.folder(link, "removed");
      const flat = { user, recursive: false };
      await link.makeFolder(`${folder}/a/b`, { user, mode: 0o755, parents: true });
      await rig.write(link, "removed/a/b/c", "x");
      await refuses(link.removePath(`${folder}/a`, flat), "path_not_empty");
      await link.removePath(`${folder}/a/b/c`, flat);
      await link.removePath(`${folder}/a/b`, flat);
      await refuses(link.removePath(`${folder}/a/b`, flat), "path_not_found");
      await link.makeFolder(`${folder}/a/d/e`, { user, mode: 0o755, parents: true });
      for (let i = 0; i < 20; i++) await rig.write(link, `removed/a/d/${i}`, "x");
      await link.removePath(`${folder}/a/`, { user, recursive: true });
      expect(await entries(link, folder, user)).toEqual([]);
      link.close("test");
    });

    test("part of a file is read, with the facts of the whole", async (context) => {
      rig.needs(context, "version-2");
      const link = await rig.letOut();
      const { user, folder } = rig.subject;
      const path = `${folder}/part`;
      await rig.write(link, "part", "0123456789");
      const part = async (offset: number, length?: number): Promise<string> => {
        const range = length === undefined ? { offset } : { offset, length };
        const { facts, bytes } = await link.readFile(path, user, range);
        expect(facts.size).toBe(10);
        return Buffer.concat(await all(bytes)).toString();
      };
      expect(await part(3)).toBe("3456789");
      expect(await part(3, 4)).toBe("3456");
      expect(await part(8, 100)).toBe("89");
      expect(await part(10)).toBe("");
      expect(await part(1_000_000, 1)).toBe("");
      expect(await part(0, 0)).toBe("");
      await refuses(part(-1), "bad_request");
      link.close("test");
    });
  });
}
