/** Files into an agent and out of it: whole or not there, and never through a link. */
import { createHash, randomBytes } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";
import { refusal } from "./host-view.ts";

const MIB = 1024 * 1024;

describe("files of an agent", () => {
  const under = new DaemonUnderTest();
  const folder = mkdtempSync(join(tmpdir(), "perdure-file-"));

  beforeAll(async () => {
    await under.start();
    await under.client.create({ name: "f" });
  });
  afterAll(async () => {
    rmSync(folder, { recursive: true, force: true });
    expect(await under.end()).toEqual([]);
  });

  /** What the guest itself says of a file: digest, size, owner, mode. */
  async function factsInside(path: string): Promise<string> {
    const line = `sha256sum < '${path}' | cut -d' ' -f1; stat -c '%s %U:%G %a' '${path}'`;
    return (await under.sh("f", line)).replaceAll("\n", " ");
  }
  function digest(bytes: Uint8Array): string {
    return createHash("sha256").update(bytes).digest("hex");
  }
  async function namesIn(path: string): Promise<string[]> {
    const out = await under.sh("f", `ls -A '${path}'`);
    return out === "" ? [] : out.split("\n");
  }

  test.each([0, 1, 65_536, 65_537, 5 * MIB])(
    "C44 an upload of %i bytes is whole, the agent's user owns it, and it comes back equal",
    async (size) => {
      const bytes = randomBytes(size);
      const path = `/home/user/up-${size}`;
      await under.client.writeFile("f", path, bytes);
      expect(await factsInside(path)).toBe(`${digest(bytes)} ${size} user:user 644`);
      const read = await under.client.readFile("f", path);
      expect(read.facts).toMatchObject({ size, mode: 0o644, uid: 1000, gid: 1000 });
      expect(digest(await read.collect())).toBe(digest(bytes));
    },
  );

  test("C44 an upload of 300 MiB is whole, and one that is broken off near its end is not there", async () => {
    const size = 300 * MIB;
    const piece = randomBytes(MIB);
    const hash = createHash("sha256");
    const body = async function* (): AsyncGenerator<Uint8Array> {
      for (let i = 0; i < size / MIB; i++) {
        const bytes = Buffer.from(piece);
        bytes.writeUInt32BE(i);
        hash.update(bytes);
        yield await Promise.resolve(bytes);
      }
    };
    const path = "/home/user/large/file";
    await under.sh("f", "mkdir /home/user/large", "user");
    await under.client.writeFile("f", path, body(), { size });
    expect(await factsInside(path)).toBe(`${hash.digest("hex")} ${size} user:user 644`);
    await under.sh("f", `rm ${path}`);
    await abandonedUpload(under.socket, "f", path, size, size - MIB);
    await until("what was begun to be gone", async () => {
      return (await namesIn("/home/user/large")).length === 0;
    });
  });

  test("C44 a file is replaced whole; mode and user are as asked", async () => {
    const path = "/var/tmp/tool";
    await under.client.writeFile("f", path, "old", { user: "root", mode: 0o600 });
    expect(await factsInside(path)).toBe(`${digest(Buffer.from("old"))} 3 root:root 600`);
    const refused = await refusal(under.client.writeFile("f", "/etc/of-user", "x"));
    expect(refused.code).toBe("path_denied");
    expect((await refusal(under.client.readFile("f", path))).code).toBe("path_denied");
    await under.client.writeFile("f", path, "#!/bin/sh\necho new\n", {
      user: "root",
      mode: 0o4755,
    });
    expect(await under.sh("f", `${path}; stat -c %a ${path}`)).toBe("new\n4755");
  });

  test("C44 an upload whose client goes away half-way leaves the old file, and nothing else", async () => {
    await under.sh("f", "mkdir -p /home/user/half && echo old > /home/user/half/target", "user");
    for (const path of ["/home/user/half/target", "/home/user/half/new"]) {
      await abandonedUpload(under.socket, "f", path, 5 * MIB, 2 * MIB);
    }
    await until("what was begun to be gone", async () => {
      return (await namesIn("/home/user/half")).join() === "target";
    });
    expect(await under.sh("f", "cat /home/user/half/target")).toBe("old");
  });

  test("C44 an upload of another size than announced is refused and leaves the old file", async () => {
    const path = "/home/user/half/target";
    for (const size of [3, 9]) {
      const body = async function* (): AsyncGenerator<Uint8Array> {
        yield await Promise.resolve(Buffer.from("sixsix"));
      };
      const refused = await refusal(under.client.writeFile("f", path, body(), { size }));
      expect(["size_mismatch", "interrupted", "cancelled"]).toContain(refused.code);
    }
    await until("what was begun to be gone", async () => {
      return (await namesIn("/home/user/half")).join() === "target";
    });
    expect(await under.sh("f", `cat ${path}`)).toBe("old");
  });

  test("C44 an upload that a sleep cuts is told so, and the old file is there after the wake", async () => {
    const path = "/home/user/half/target";
    const begun = Promise.withResolvers<undefined>();
    const slept = Promise.withResolvers<undefined>();
    const body = async function* (): AsyncGenerator<Uint8Array> {
      yield randomBytes(MIB);
      begun.resolve(undefined);
      await slept.promise;
      yield randomBytes(MIB);
    };
    const upload = refusal(under.client.writeFile("f", path, body(), { size: 2 * MIB }));
    await begun.promise;
    await until("bytes of it to be inside", async () => {
      return (await namesIn("/home/user/half")).length > 1;
    });
    const agent = await under.client.sleep("f");
    expect(agent.state).toBe("asleep");
    slept.resolve(undefined);
    expect((await upload).code).toBe("interrupted");
    await under.client.wake("f");
    expect(await under.sh("f", `cat ${path}`)).toBe("old");
    await until("what was begun to be gone", async () => {
      return (await namesIn("/home/user/half")).join() === "target";
    });
    await under.client.writeFile("f", path, "again");
    expect(await under.sh("f", `cat ${path}`)).toBe("again");
  });

  test("C45 a link in any part of a path is refused, in reading and in writing, for user and root", async () => {
    await under.sh(
      "f",
      `mkdir -p /root/private /home/user/l/sub && echo secret > /root/private/file
       echo mine > /home/user/l/plain
       cd /home/user/l
       ln -s /root/private/file final; ln -s /root/private parent; ln -s ../../user/l/plain near
       ln -s /root/private/absent dangling; ln -s loop loop; ln -s /proc/self/root root
       ln -s plain chain1; ln -s chain1 chain2; ln -s /etc sub/etc
       chown -hR user:user /home/user/l`,
    );
    const links = [
      "/home/user/l/final",
      "/home/user/l/parent/file",
      "/home/user/l/near",
      "/home/user/l/dangling",
      "/home/user/l/loop",
      "/home/user/l/chain2",
      "/home/user/l/root/root/private/file",
      "/home/user/l/sub/etc/passwd",
      "/proc/self/root/root/private/file",
      "/proc/1/root/root/private/file",
      "/proc/self/cwd/file",
      "/proc/self/exe",
      "/proc/self/fd/0",
      "/dev/stdin",
    ];
    const before = await treeState();
    for (const path of links) {
      for (const user of ["user", "root"]) {
        const read = await refusal(under.client.readFile("f", path, { user }));
        const write = await refusal(under.client.writeFile("f", path, "overwritten", { user }));
        // A user may be kept out before the link is seen.
        const codes = user === "root" ? ["path_is_link"] : ["path_is_link", "path_denied"];
        expect
          .soft([path, user, codes.includes(read.code) ? "refused" : read.code])
          .toEqual([path, user, "refused"]);
        expect
          .soft([path, user, codes.includes(write.code) ? "refused" : write.code])
          .toEqual([path, user, "refused"]);
      }
    }
    expect(await treeState()).toBe(before);
  });

  test("C45 the message of a refused link names it and where it leads", async () => {
    const refused = await refusal(under.client.readFile("f", "/home/user/l/near"));
    expect(refused.message).toBe(
      'Cannot read "/home/user/l/near": there is a symbolic link in the path. Use "/home/user/l/plain"',
    );
    const plain = await under.client.readFile("f", "/home/user/l/plain");
    expect(await plain.text()).toBe("mine\n");
  });

  test("C45 a folder that becomes a link again and again never leads a write out of it", async () => {
    const toggle = `
      mkdir /home/user/l/real; ln -s /root/private /home/user/l/bait
      while :; do mv -T /home/user/l/real /home/user/l/d; mv -T /home/user/l/d /home/user/l/real
        mv -T /home/user/l/bait /home/user/l/d; mv -T /home/user/l/d /home/user/l/bait; done`;
    const toggling = await under.client.exec("f", ["/bin/bash", "-c", toggle]);
    await until("it to begin", async () =>
      (await under.sh("f", "ls -A /home/user/l")).includes("bait"),
    );
    let written = 0;
    for (let i = 0; i < 60; i++) {
      const done = await under.client
        .writeFile("f", `/home/user/l/d/w${i}`, "x", { user: "root" })
        .then(
          () => "written",
          (error: unknown) => (error as { code?: string }).code,
        );
      expect(["written", "path_is_link", "path_not_found"]).toContain(done);
      if (done === "written") written++;
    }
    await toggling.signal("SIGKILL");
    expect(await namesIn("/root/private")).toEqual(["file"]);
    const inside = await under.sh("f", "find /home/user/l -name 'w[0-9]*' | wc -l");
    expect(Number(inside)).toBe(written);
  });

  test("C45 what is no regular file is refused, not waited for", async () => {
    await under.sh("f", "mkfifo /home/user/l/pipe; chown user /home/user/l/pipe");
    const { client } = under;
    expect((await refusal(client.readFile("f", "/home/user/l/pipe"))).code).toBe("path_not_file");
    expect((await refusal(client.readFile("f", "/dev/zero"))).code).toBe("path_not_file");
    expect((await refusal(client.readFile("f", "/home/user/l"))).code).toBe("path_is_directory");
    expect((await refusal(client.writeFile("f", "/home/user/l", "x"))).code).toBe(
      "path_is_directory",
    );
    expect((await refusal(client.readFile("f", "/home/user/none"))).code).toBe("path_not_found");
    expect((await refusal(client.writeFile("f", "/home/user/none/x", "x"))).code).toBe(
      "path_not_found",
    );
  });

  test("paths up to the limits work or are refused with a code", async () => {
    const { client } = under;
    const longest = `/home/user/${"n".repeat(255)}`;
    await client.writeFile("f", longest.slice(0, -20), "long");
    expect(await under.sh("f", `cat ${longest.slice(0, -20)}`)).toBe("long");
    const full = await client.writeFile("f", longest, "x").then(
      () => "written",
      (error: unknown) => (error as { code?: string }).code,
    );
    expect(full).toBe("written");
    expect(["bad_request", "path_not_found"]).toContain(
      (await refusal(client.writeFile("f", `${longest}n`, "x"))).code,
    );
    const deep = `/home/user${"/d".repeat(2_000)}`;
    await under.sh(
      "f",
      `perl -e 'chdir "/home/user"; for (1 .. 2000) { mkdir "d"; chdir "d" }'`,
      "user",
    );
    await client.writeFile("f", `${deep}/end`, "deep");
    expect(await (await client.readFile("f", `${deep}/end`)).text()).toBe("deep");
    const over = `/home/user/${"p/".repeat(2_050)}x`;
    expect((await refusal(client.readFile("f", over))).code).toBe("bad_request");
    for (const path of ["relative", "/home/user/../../etc/passwd", "/home/user/a\0b", ""]) {
      expect((await refusal(client.readFile("f", path))).code).toBe("bad_request");
      expect((await refusal(client.writeFile("f", path, "x"))).code).toBe("bad_request");
    }
    const odd = "/home/user/ä ö?&=%#\n'\"";
    await client.writeFile("f", odd, "odd");
    expect(await (await client.readFile("f", odd)).text()).toBe("odd");
  });

  test("C44 cp copies both ways, keeps the mode, and leaves nothing of a copy that failed", async () => {
    const bytes = randomBytes(MIB + 1);
    const local = join(folder, "tool");
    writeFileSync(local, bytes, { mode: 0o751 });
    const sent = await under.perdure(["cp", local, "f:/home/user/"]);
    expect([sent.code, sent.stderr]).toEqual([0, ""]);
    expect(await factsInside("/home/user/tool")).toBe(
      `${digest(bytes)} ${bytes.length} user:user 751`,
    );
    const back = join(folder, "back");
    expect((await under.perdure(["cp", "f:/home/user/tool", back])).code).toBe(0);
    expect(digest(readFileSync(back))).toBe(digest(bytes));
    expect(statSync(back).mode & 0o777).toBe(0o751);
    expect(
      (await under.perdure(["cp", "--mode", "600", "-", "f:/home/user/in"], "typed")).code,
    ).toBe(0);
    expect(await factsInside("/home/user/in")).toBe(
      `${digest(Buffer.from("typed"))} 5 user:user 600`,
    );
    const out = await under.perdure(["cp", "f:/home/user/in", "-"]);
    expect([out.code, out.stdout]).toEqual([0, "typed"]);
    const failed = await under.perdure([
      "cp",
      "--json",
      "f:/home/user/l/near",
      join(folder, "absent"),
    ]);
    expect(failed.code).toBe(1);
    expect(failed.stderr).toContain("path_is_link");
    expect(statSync(folder).isDirectory()).toBe(true);
    expect(() => statSync(join(folder, "absent"))).toThrow();
  });

  /** Every file that a link leads to, and the links, as root inside sees them. */
  function treeState(): Promise<string> {
    return under.sh(
      "f",
      "find /home/user/l /root/private -printf '%p %y %l %s\\n' | sort; cat /root/private/file; sha256sum /etc/passwd; ls -A /root/private",
    );
  }
});

/** Announces `size` bytes, sends some of them, and vanishes when they have left for the daemon. */
function abandonedUpload(
  socketPath: string,
  agent: string,
  path: string,
  size: number,
  sent: number,
): Promise<void> {
  return new Promise((gone) => {
    const call = request({
      socketPath,
      method: "PUT",
      path: `/v1/agents/${agent}/files?path=${encodeURIComponent(path)}`,
      headers: { "content-type": "application/octet-stream", "content-length": size },
    });
    call.on("error", () => undefined);
    call.on("close", () => gone());
    call.write(randomBytes(sent), () => call.destroy());
  });
}
