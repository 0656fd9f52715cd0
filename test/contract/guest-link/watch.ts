/** Changes inside, as a watch tells them. */
import { describe, expect, test } from "vitest";
import type { FileChange } from "../../../packages/daemon/src/core/ports/guest-link.ts";
import { refuses } from "../refusal.ts";
import { DEADLINE_MS, type GuestLinkRig } from "./rig.ts";

/** A watch that is being read. */
class Watch {
  readonly #iterator: AsyncIterator<FileChange, unknown>;

  constructor(changes: AsyncIterable<FileChange>) {
    this.#iterator = changes[Symbol.asyncIterator]();
  }

  async next(): Promise<FileChange | null> {
    const { done, value } = await this.#iterator.next();
    return done === true ? null : value;
  }

  /** Takes changes until this one; what else is told on the way does not matter. */
  async until(wanted: FileChange): Promise<void> {
    for (;;) {
      const change = await this.next();
      if (change === null) throw new Error(`The watch ended before ${JSON.stringify(wanted)}`);
      if (JSON.stringify(change) === JSON.stringify(wanted)) return;
    }
  }

  async leave(): Promise<void> {
    await this.#iterator.return?.();
  }
}

export function watchTests(rig: GuestLinkRig): void {
  describe("watch", () => {
    test("what happens after `ready` is told, at any depth only where asked", async (context) => {
      rig.needs(context, "version-2");
      const link = await rig.letOut();
      const { user } = rig.subject;
      const folder = await rig.folder(link, "watched");
      const at = (name: string): string => `${folder}/${name}`;
      await link.makeFolder(at("sub"), { user, mode: 0o755, parents: false });
      const flat = new Watch(link.watch(folder, { user, recursive: false }));
      const deep = new Watch(link.watch(folder, { user, recursive: true }));
      expect(await flat.next()).toEqual({ type: "ready" });
      expect(await deep.next()).toEqual({ type: "ready" });
      await rig.write(link, "watched/sub/low", "x");
      await deep.until({ type: "created", path: at("sub/low") });
      await rig.write(link, "watched/top", "x");
      expect(await flat.next()).toEqual({ type: "created", path: at("top") });
      await deep.until({ type: "created", path: at("top") });
      await link.movePath(at("sub/low"), at("sub/low2"), { user, replace: false });
      await deep.until({ type: "moved", path: at("sub/low2"), from: at("sub/low") });
      await link.movePath(at("sub/low2"), at("up"), { user, replace: false });
      await deep.until({ type: "moved", path: at("up"), from: at("sub/low2") });
      await flat.until({ type: "created", path: at("up") });
      await link.makeFolder(at("new/deeper"), { user, mode: 0o755, parents: true });
      await deep.until({ type: "created", path: at("new/deeper") });
      await rig.write(link, "watched/new/deeper/f", "x");
      await deep.until({ type: "created", path: at("new/deeper/f") });
      await link.movePath(at("new"), at("renamed"), { user, replace: false });
      await deep.until({ type: "moved", path: at("renamed"), from: at("new") });
      await rig.write(link, "watched/renamed/deeper/g", "x");
      await deep.until({ type: "created", path: at("renamed/deeper/g") });
      await link.removePath(at("up"), { user, recursive: false });
      await deep.until({ type: "removed", path: at("up") });
      await flat.until({ type: "removed", path: at("up") });
      await flat.leave();
      await deep.leave();
      await link.info(DEADLINE_MS);
      link.close("test");
    });

    test("ends when what is watched is gone", async (context) => {
      rig.needs(context, "version-2");
      const link = await rig.letOut();
      const { user } = rig.subject;
      const folder = await rig.folder(link, "gone");
      const watch = new Watch(link.watch(folder, { user, recursive: true }));
      expect(await watch.next()).toEqual({ type: "ready" });
      await link.removePath(folder, { user, recursive: true });
      await watch.until({ type: "removed", path: folder });
      expect(await watch.next()).toBe(null);
      link.close("test");
    });

    test("a link that closes interrupts it, and what cannot be watched says why", async (context) => {
      rig.needs(context, "version-2");
      const link = await rig.letOut();
      const { user, folder } = rig.subject;
      const options = { user, recursive: false };
      await refuses(new Watch(link.watch(`${folder}/none`, options)).next(), "path_not_found");
      await refuses(new Watch(link.watch("relative", options)).next(), "bad_request");
      const watch = new Watch(link.watch(folder, options));
      expect(await watch.next()).toEqual({ type: "ready" });
      const next = watch.next();
      link.close("sleep");
      const error = await refuses(next, "interrupted");
      expect(error.details).toMatchObject({ reason: "sleep" });
    });

    test("return() while a change is awaited ends at once", async (context) => {
      rig.needs(context, "version-2");
      const link = await rig.letOut();
      const { user, folder } = rig.subject;
      const iterator = link.watch(folder, { user, recursive: false })[Symbol.asyncIterator]();
      await iterator.next();
      const pending = iterator.next();
      await iterator.return?.();
      expect((await pending).done).toBe(true);
      await link.info(DEADLINE_MS);
      link.close("test");
    });
  });
}
