/** Folders into an agent and out of it: whole or not there, and nothing of a guest's outside of the copy. */
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { randomBytes } from "node:crypto";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { downloadFolder, uploadFolder } from "../../packages/cli/src/folder-copy.ts";
import { DaemonUnderTest } from "./daemon-under-test.ts";
import { refusal } from "./host-view.ts";

const MIB = 1024 * 1024;

describe("folders of an agent", () => {
  const under = new DaemonUnderTest();
  const place = mkdtempSync(join(tmpdir(), "perdure-copy-folder-"));
  const source = join(place, "source");

  beforeAll(async () => {
    await under.start();
    await under.client.create({ name: "f" });
    makeSource();
  });
  afterEach(async () => {
    // Whatever a test copied: no draft of it is left, here or inside.
    expect(readdirSync(place).filter((name) => name.startsWith("."))).toEqual([]);
    expect(await under.sh("f", "find / -xdev -name '.*.perdure-*'")).toBe("");
  });
  afterAll(async () => {
    rmSync(place, { recursive: true, force: true });
    expect(await under.end()).toEqual([]);
  });

  function makeSource(): void {
    mkdirSync(join(source, "deep", "er"), { recursive: true });
    mkdirSync(join(source, "empty"));
    writeFileSync(join(source, "big"), randomBytes(5 * MIB));
    writeFileSync(join(source, "deep", "run"), "#!/bin/sh\necho ran\n", { mode: 0o755 });
    writeFileSync(join(source, "-odd name\n'$\u00fc"), "odd");
    symlinkSync("../big", join(source, "deep", "up"));
    symlinkSync("/etc/hostname", join(source, "absolute"));
    linkSync(join(source, "big"), join(source, "deep", "same"));
    for (let i = 0; i < 300; i++) writeFileSync(join(source, "deep", "er", `${i}`), `${i}`);
  }

  const json = (text: string): unknown => JSON.parse(text);
  const run = (...args: string[]) => under.perdure(["cp", "--recursive", "--json", ...args]);

  test("one with links, modes and odd names goes in and comes back", async () => {
    const sent = await run(source, "f:/home/user/");
    expect([sent.code, sent.stderr]).toEqual([0, ""]);
    expect(json(sent.stdout)).toMatchObject({ files: 304, leftOut: { count: 0 } });
    const inside = "cd /home/user/source && deep/run && readlink deep/up absolute";
    expect(await under.sh("f", inside, "user")).toBe("ran\n../big\n/etc/hostname");
    const owners = "find /home/user/source ! -user user -o ! -group user | wc -l";
    expect(await under.sh("f", owners)).toBe("0");

    await under.sh("f", "rm /home/user/source/absolute");
    rmSync(join(source, "absolute"));
    mkdirSync(join(place, "into"));
    for (const [to, copy] of [
      [join(place, "into"), join(place, "into", "source")],
      [join(place, "named"), join(place, "named")],
    ] as const) {
      const back = await run("f:/home/user/source", to);
      expect([back.code, back.stderr]).toEqual([0, ""]);
      execFileSync("diff", ["-r", "--no-dereference", source, copy]);
      expect(statSync(join(copy, "deep", "run")).mode & 0o777).toBe(0o755);
    }
  });

  test("a file is copied by the same words", async () => {
    expect((await run(join(source, "big"), "f:/home/user/one")).code).toBe(0);
    expect((await run("f:/home/user/one", join(place, "one"))).code).toBe(0);
    expect(statSync(join(place, "one")).size).toBe(5 * MIB);
  });

  test("what stands at the end never gives way, and what is missing is named", async () => {
    for (const [args, code] of [
      [[source, "f:/home/user/source"], "path_exists"],
      [["f:/home/user/source", join(place, "into")], "path_exists"],
      [[source, "f:/no/such/copy"], "path_not_found"],
      [["f:/no/such", join(place, "new")], "path_not_found"],
      [["f:/home/user/source", join(place, "no", "such")], "path_not_found"],
      [[join(place, "none"), "f:/home/user/none"], "path_not_found"],
      [[source, "f:/root/copy"], "path_denied"],
      [[source, "nobody:/home/user/copy"], "agent_not_found"],
    ] as const) {
      const { code: exit, stdout, stderr } = await run(...args);
      expect([exit, stdout], args.join(" ")).toEqual([1, ""]);
      expect(json(stderr), args.join(" ")).toMatchObject({ code });
    }
  });

  test("what a hostile guest puts into one stays out: links that lead out, pipes, devices, set-uid", async () => {
    await under.sh(
      "f",
      `mkdir -p /srv/bad/sub && cd /srv/bad && echo fine > fine && ln -s /etc/passwd a && ln -s ../../.. b
       ln -s sub/../../.. c && ln -s sub good && mkfifo pipe && mknod null c 1 3 && cp /bin/true su && chmod 4755 su`,
    );
    const target = join(place, "bad");
    const { code, stderr } = await under.perdure([
      "cp",
      "-r",
      "--user",
      "root",
      "f:/srv/bad",
      target,
    ]);
    expect(code).toBe(0);
    for (const name of ["a", "b", "c", "pipe", "null"]) {
      expect(stderr).toContain(`perdure: ./${name} was left out`);
    }
    expect(readdirSync(target).sort()).toEqual(["fine", "good", "su", "sub"]);
    expect(statSync(join(target, "su")).mode & 0o7777).toBe(0o755);
  });

  test("one that cannot be read or written whole is not there at all", async () => {
    await under.sh("f", "mkdir /srv/part && cd /srv/part && echo x > seen && echo x > hidden");
    await under.sh("f", "chmod 600 /srv/part/hidden");
    const denied = await run("f:/srv/part", join(place, "part"));
    expect(json(denied.stderr)).toMatchObject({ code: "path_denied" });
    expect(readdirSync(place)).not.toContain("part");
    await under.sh("f", "mkdir /srv/small && mount -t tmpfs -o size=1m tmpfs /srv/small");
    const full = await run("--user", "root", source, "f:/srv/small/copy");
    expect(json(full.stderr)).toMatchObject({ code: "disk_full" });
    expect(await under.sh("f", "ls -A /srv/small; umount /srv/small")).toBe("");
  });

  test("without a tar inside it says so", async () => {
    await under.sh("f", "mv /usr/bin/tar /usr/bin/rat");
    const { stderr } = await run(source, "f:/home/user/other");
    await under.sh("f", "mv /usr/bin/rat /usr/bin/tar");
    expect(json(stderr)).toMatchObject({
      code: "exec_failed",
      hint: "Folders are copied by the shell and the tar of the agent's image; install them in it.",
    });
  });

  test("one that is stopped half-way leaves nothing, and no tar", async () => {
    for (const copy of [
      (stop: AbortController) =>
        uploadFolder(under.client, source, { agent: "f", path: "/home/user/stop" }, stopping(stop)),
      (stop: AbortController) =>
        downloadFolder(
          under.client,
          { agent: "f", path: "/home/user/source" },
          join(place, "stop"),
          stopping(stop),
        ),
    ]) {
      const stop = new AbortController();
      expect((await refusal(copy(stop))).code).toBe("cancelled");
      expect(await under.sh("f", "pgrep -x tar || true")).toBe("");
    }
    expect(readdirSync(place)).not.toContain("stop");
    expect(await under.sh("f", "ls /home/user")).not.toContain("stop");
  });

  function stopping(stop: AbortController) {
    return { progress: () => stop.abort(), signal: stop.signal };
  }

  test("one that a stop cuts says how to remove what was begun", async () => {
    const stopping = once(() => under.client.stop("f"));
    const error = await refusal(
      uploadFolder(
        under.client,
        source,
        { agent: "f", path: "/home/user/cut" },
        {
          progress: stopping.begin,
          signal: new AbortController().signal,
        },
      ),
    );
    await stopping.done;
    expect(["interrupted", "guest_error"]).toContain(error.code);
    expect((await under.client.show("f")).state).toBe("stopped");
    await under.client.start("f");
    const [, begun] = /file remove (f:\S+) --recursive/.exec(error.hint ?? "") ?? [];
    const removed = await under.perdure(["file", "remove", "--recursive", begun ?? ""]);
    expect(removed.code).toBe(0);
  });

  test("one that a sleep cuts says so, and does not wake the agent", async () => {
    const target = join(place, "asleep");
    const sleeping = once(() => under.client.sleep("f"));
    const whole = { agent: "f", path: "/" };
    const error = await refusal(
      downloadFolder(under.client, whole, target, {
        user: "root",
        progress: sleeping.begin,
        signal: new AbortController().signal,
      }),
    );
    expect(error.code).toBe("interrupted");
    await sleeping.done;
    expect((await under.client.show("f")).state).toBe("asleep");
    expect(readdirSync(place)).not.toContain("asleep");
    await under.sh("f", "pkill -x tar");
  });

  test("one whose folders are not writable goes in and out", async () => {
    chmodSync(join(source, "deep", "er"), 0o555);
    const sent = await run(source, "f:/home/user/locked");
    expect([sent.code, sent.stderr]).toEqual([0, ""]);
    expect(await under.sh("f", "stat -c %a /home/user/locked/deep/er")).toBe("755");
    const back = await run("f:/home/user/locked", join(place, "locked"));
    expect([back.code, back.stderr]).toEqual([0, ""]);
  });
});

/** Does `work` when it is begun first. */
function once(work: () => Promise<unknown>): { begin: () => void; done: Promise<unknown> } {
  const begun = Promise.withResolvers<undefined>();
  return { begin: () => begun.resolve(undefined), done: begun.promise.then(work) };
}
