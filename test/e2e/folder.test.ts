/** Folders and paths of an agent, and watches of them: against the real file system, and never through a link. */
import type { FileEvent } from "@perdure/sdk";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DaemonUnderTest } from "./daemon-under-test.ts";
import { refusal } from "./host-view.ts";

const home = "/home/user";

describe("folders of an agent", () => {
  const under = new DaemonUnderTest();

  beforeAll(async () => {
    await under.start();
    await under.client.create({ name: "d" });
  });
  afterAll(async () => {
    expect(await under.end()).toEqual([]);
  });

  async function namesIn(path: string, user: string): Promise<string[]> {
    const names: string[] = [];
    for await (const { name } of under.client.listFolder("d", path, { user })) names.push(name);
    return names.toSorted();
  }

  test("what is made, moved, listed and removed is so inside, and the user's", async () => {
    await under.client.makeFolder("d", `${home}/a/b`, { parents: true, mode: 0o750 });
    await under.client.writeFile("d", `${home}/a/b/f`, "hello");
    expect(await under.sh("d", `stat -c '%U %a' ${home}/a ${home}/a/b ${home}/a/b/f`)).toBe(
      "user 755\nuser 750\nuser 644",
    );
    await under.client.movePath("d", `${home}/a/b/f`, `${home}/a/g`);
    expect(await under.sh("d", `cat ${home}/a/g`)).toBe("hello");
    const taken = await refusal(under.client.movePath("d", `${home}/a/g`, `${home}/a/b`));
    expect(taken.code).toBe("path_exists");
    await under.sh(
      "d",
      `cd ${home}/a && ln -s nowhere link && for i in $(seq 300); do : > $i; done`,
    );
    const names = await namesIn(`${home}/a`, "user");
    expect(names).toHaveLength(303);
    const kinds = new Map<string, string | null>();
    for await (const entry of under.client.listFolder("d", `${home}/a`)) {
      if (["b", "g", "link"].includes(entry.name)) kinds.set(entry.kind, entry.linkTarget);
    }
    expect(Object.fromEntries(kinds)).toEqual({ directory: null, file: null, link: "nowhere" });
    const full = await refusal(under.client.removePath("d", `${home}/a`));
    expect(full.code).toBe("path_not_empty");
    await under.client.removePath("d", `${home}/a`, { recursive: true });
    expect(await under.sh("d", `ls -d ${home}/a 2>/dev/null || echo gone`)).toBe("gone");
  });

  test("C45 no link leads anywhere: not a list, not a folder made, not a move, not a removal", async () => {
    await under.sh(
      "d",
      `mkdir -p /root/kept/in ${home}/l && echo secret > /root/kept/file
       cd ${home}/l && ln -s /root/kept to && mkdir tree && ln -s /root/kept tree/to && : > plain
       chown -hR user:user ${home}/l`,
    );
    for (const user of ["user", "root"]) {
      for (const path of [`${home}/l/to`, `${home}/l/to/in`, "/proc/self/root/root/kept"]) {
        const list = namesIn(path, user);
        expect(["path_is_link", "path_denied"]).toContain((await refusal(list)).code);
        const made = under.client.makeFolder("d", `${path}/new`, { user, parents: true });
        expect((await refusal(made)).code).toBe("path_is_link");
        const moved = under.client.movePath("d", `${home}/l/plain`, `${path}/moved`, { user });
        expect((await refusal(moved)).code).toBe("path_is_link");
        const removed = under.client.removePath("d", `${path}/in`, { user, recursive: true });
        expect((await refusal(removed)).code).toBe("path_is_link");
      }
    }
    await under.client.removePath("d", `${home}/l/tree`, { user: "root", recursive: true });
    await under.client.removePath("d", `${home}/l/to`, { user: "root", recursive: true });
    expect(await under.sh("d", "ls -A /root/kept; cat /root/kept/file")).toBe("file\nin\nsecret");
    for (const [path, code] of [
      ["/", "bad_request"],
      ["/proc", "path_crosses_mount"],
      ["/dev/shm", "path_crosses_mount"],
    ] as const) {
      const kept = under.client.removePath("d", path, { user: "root", recursive: true });
      expect((await refusal(kept)).code).toBe(code);
    }
    const across = under.client.movePath("d", `${home}/l/plain`, "/dev/shm/plain", {
      user: "root",
    });
    expect((await refusal(across)).code).toBe("path_crosses_mount");
  });

  test("a watch tells what programs do, and a sleep cuts it in a typed way", async () => {
    await under.client.makeFolder("d", `${home}/w/sub`, { parents: true });
    const events: FileEvent[] = [];
    for await (const event of under.client.watch("d", `${home}/w`, { recursive: true })) {
      events.push(event);
      if (event.type === "ready") {
        await under.sh("d", `cd ${home}/w && echo x > sub/f && mv sub moved && rm moved/f`);
      }
      if (event.type === "removed") await under.client.sleep("d");
      if (event.type === "interrupted") await under.client.wake("d");
      if (event.type === "missed") await under.sh("d", `: > ${home}/w/after`);
      if (event.type === "created" && event.path.endsWith("/after")) break;
    }
    const told = events.filter(({ type }) => type !== "changed" && type !== "attributes");
    expect(told).toEqual([
      { type: "ready" },
      { type: "created", path: `${home}/w/sub/f` },
      { type: "moved", path: `${home}/w/moved`, from: `${home}/w/sub` },
      { type: "removed", path: `${home}/w/moved/f` },
      { type: "interrupted", reason: "sleep" },
      { type: "missed" },
      { type: "created", path: `${home}/w/after` },
    ]);
    expect(await under.sh("d", "pgrep -c -P 1 -x init || true")).toBe("0");
  });
});
