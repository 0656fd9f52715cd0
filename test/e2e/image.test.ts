/**
 * Images of containers on real VMs: made from archives over the command line, then agents that are created,
 * sleep, wake and start again. There is no shell in them, and in one no file but a static program.
 */
import { execFileSync } from "node:child_process";
import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Perdure } from "@perdure/sdk";
import { defaultImagesDirectory } from "../../packages/daemon/src/images/image-store.ts";
import {
  file,
  folder,
  hardlink,
  layer,
  ociArchive,
  symlink,
} from "../contract/container-archive.ts";
import { DaemonUnderTest, text, until } from "./daemon-under-test.ts";
import { crash } from "./host-view.ts";

const under = new DaemonUnderTest();
const work = mkdtempSync(join(tmpdir(), "perdure-images-"));
const images = join(work, "images");
const app = join(work, "app");

/** CAP_NET_BIND_SERVICE, as `setcap` writes it. */
const capability = Buffer.from("0100000200040000000000000000000000000000", "hex");

beforeAll(async () => {
  // Every VM process is a user of its own.
  chmodSync(work, 0o755);
  execFileSync("musl-gcc", [
    "-static",
    "-Os",
    "-o",
    app,
    join(import.meta.dirname, "container-app.c"),
  ]);
  copyBaseImage();
  writeFileSync(join(work, "multi.tar"), multi());
  const program = file("app", readFileSync(app), { mode: 0o755 });
  const config = { Entrypoint: ["/app"], Cmd: ["serve"] };
  writeFileSync(join(work, "scratch.tar"), ociArchive({ layers: [layer([program])], config }));
  await under.start({ PERDURE_IMAGES: images });
});
afterAll(async () => {
  expect(await under.end()).toEqual([]);
  rmSync(work, { recursive: true });
});

/** Images of this test are nobody else's; the base is what set-up made. */
function copyBaseImage(): void {
  const from = defaultImagesDirectory();
  const id = readFileSync(join(from, "names/debian"), "utf8").trim();
  mkdirSync(join(images, id), { recursive: true });
  cpSync(join(from, "names/debian"), join(images, "names/debian"));
  for (const name of readdirSync(join(from, id))) {
    execFileSync("cp", ["--sparse=always", join(from, id, name), join(images, id, name)]);
  }
}

function multi(): Buffer {
  const program = readFileSync(app);
  return ociArchive({
    layers: [
      layer([
        folder("etc/"),
        file("etc/passwd", "root:x:0:0::/root:/none\nsvc:x:1234:1235::/srv:/none\n"),
        file("etc/group", "root:x:0:\nsvc:x:1235:\nextra:x:77:svc\n"),
        symlink("etc/resolv.conf", "/run/elsewhere"),
        file("hidden", "lower"),
        file("opaque/lower", "x"),
        file("replaced/a", "x"),
        symlink("lib", "usr/lib"),
        file("bin/app", "not this one"),
      ]),
      layer(
        [
          file(".wh.hidden"),
          file("opaque/.wh..wh..opq"),
          file("opaque/upper", "y"),
          file("replaced", "a file now", {
            mode: 0o4751,
            uid: 1234,
            gid: 77,
            mtime: 1_234_567_890,
          }),
          file("lib/through", "a link"),
          file("bin/app", program, {
            mode: 0o755,
            pax: { "SCHILY.xattr.security.capability": capability },
          }),
          hardlink("bin/same", "bin/app"),
        ],
        "zstd",
      ),
    ],
    config: {
      User: "svc",
      Env: ["PATH=/bin", "GREETING=hello"],
      WorkingDir: "/work",
      Entrypoint: ["app"],
      Cmd: ["counting"],
    },
  });
}

async function made(args: readonly string[]): Promise<void> {
  const { code, stderr } = await under.perdure(["image", ...args]);
  expect({ code, stderr: stderr.replaceAll(/^[A-Z].* …\n/gm, "") }).toEqual({
    code: 0,
    stderr: "",
  });
}

const shown = async (agent: string, args: string[], request = {}): Promise<string> =>
  text((await under.client.run(agent, args, request)).stdout).trimEnd();

/** The program that the image itself runs, of all that the agent knows. */
async function ownPrograms(client: Perdure, agent: string, argv: readonly string[]) {
  const found = await client.processes(agent);
  return found.filter((each) => each.argv.join(" ") === argv.join(" "));
}

/** What the program has counted to, by its own output. */
async function counted(agent: string, process: number, from: number): Promise<number> {
  for await (const piece of under.client.process(agent, process).output({ offset: from })) {
    if (piece.type !== "output") continue;
    const last = /(\d+)\n[^\n]*$/.exec(text(piece.bytes))?.[1];
    if (last !== undefined) return Number(last);
  }
  throw new Error("The program's output ended");
}

describe("an image of several layers", () => {
  const own = ["app", "counting"];

  test("makes an agent with the files of its layers, and nothing that they hide", async () => {
    const { client } = under;
    await made(["import", join(work, "multi.tar"), "--name", "multi"]);
    expect(await client.images.show("multi")).toMatchObject({
      config: { user: "svc", cwd: "/work", entrypoint: ["app"], cmd: ["counting"] },
    });
    await client.create({ name: "m1", image: "multi" });
    const there = async (path: string) => client.stat("m1", path, { user: "root" });
    for (const hidden of ["/hidden", "/opaque/lower"]) {
      await expect(there(hidden)).rejects.toMatchObject({ code: "path_not_found" });
    }
    expect(await there("/replaced")).toMatchObject({
      ...{ kind: "file", size: 10, mode: 0o4751, uid: 1234, gid: 77 },
      mtimeMs: 1_234_567_890_000,
    });
    expect(await (await client.readFile("m1", "/usr/lib/through")).text()).toBe("a link");
    // The image's own is gone: names are asked of the guest agent.
    const resolver = await (await client.readFile("m1", "/etc/resolv.conf")).text();
    expect(resolver).toMatch(/^nameserver 127\.198\.18\.53$/m);
    expect(resolver.match(/nameserver/g)).toHaveLength(1);
    expect(await (await client.readFile("m1", "/etc/hosts")).text()).toContain("localhost");
    expect(await (await client.readFile("m1", "/etc/hostname")).text()).toBe("m1\n");
  });

  test("runs programs as its configuration says, unless a call says otherwise", async () => {
    expect(await shown("m1", ["app", "facts", "more"])).toBe(
      "uid=1234 gid=1235 groups=77,1235 folder=/work HOME=/srv GREETING=hello capabilities=0000000000000400 more",
    );
    const request = { user: "0:50", cwd: "/", env: { GREETING: "hi" } };
    expect(await shown("m1", ["/bin/same", "facts"], request)).toMatch(
      /^uid=0 gid=50 groups=50 folder=\/ HOME=\/root GREETING=hi /,
    );
    expect(await shown("m1", ["app", "facts"], { user: "4321" })).toMatch(
      /^uid=4321 gid=0 groups=0 /,
    );
    await expect(shown("m1", ["app", "facts"], { user: "ghost" })).rejects.toMatchObject({
      code: "user_not_found",
    });
    // Files too are those of the image's user.
    await under.client.writeFile("m1", "/tmp/note", "x");
    expect(await under.client.stat("m1", "/tmp/note")).toMatchObject({ uid: 1234, gid: 1235 });
  });

  test("starts its program once; it sleeps and wakes with the agent, and is not started again", async () => {
    const { client } = under;
    const [started, ...others] = await ownPrograms(client, "m1", own);
    expect(others).toEqual([]);
    expect(started).toMatchObject({ running: true, user: "svc" });
    const number = started?.process ?? 0;
    const before = await counted("m1", number, 0);
    await client.sleep("m1");
    const { report } = await client.wake("m1");
    expect(report?.checks.some(({ check }) => check === "entrypoint")).toBe(false);
    const [after, ...more] = await ownPrograms(client, "m1", own);
    expect(more).toEqual([]);
    expect(after).toMatchObject({ process: number, pid: started?.pid, running: true });
    await until("the program to count on", async () => {
      const [now] = await ownPrograms(client, "m1", own);
      return (await counted("m1", number, Math.max(0, (now?.logEnd ?? 0) - 20))) > before;
    });
  });

  test("starts its program anew where memory is lost: at start, and after a crash from the disk", async () => {
    const { client } = under;
    await client.stop("m1");
    const { report } = await client.start("m1");
    const started = report?.checks.filter(({ check }) => check === "entrypoint");
    expect(started).toMatchObject([{ outcome: "passed" }]);
    expect(await ownPrograms(client, "m1", own)).toMatchObject([{ running: true }]);
    await crash(under, (await client.show("m1")).id);
    await until("the crash to be seen", async () => (await client.show("m1")).state === "failed");
    await client.recover("m1", { from: "disk" });
    expect(await ownPrograms(client, "m1", own)).toMatchObject([{ running: true }]);
  });

  test("leaves its program alone where create says so; an exec without a program runs it", async () => {
    const { client } = under;
    await client.create({ name: "m2", image: "multi", start: false });
    expect(await client.processes("m2")).toEqual([]);
    const process = await client.exec("m2", []);
    expect(await counted("m2", process.process, 0)).toBeGreaterThanOrEqual(0);
    expect(await ownPrograms(client, "m2", own)).toMatchObject([{ running: true, user: "svc" }]);
    await client.remove("m2");
  });

  test("is not removed under its agent; when that is gone it is, with its template", async () => {
    const { client } = under;
    await expect(client.images.remove("multi")).rejects.toMatchObject({
      code: "image_in_use",
      message: expect.stringContaining('"m1"') as string,
    });
    await client.remove("m1");
    const { id } = await client.images.remove("multi");
    expect(readdirSync(images)).not.toContain(id);
    expect(readdirSync(join(images, "names"))).toEqual(["debian"]);
    const templates = readdirSync(join(images, "templates")).filter(
      (name) => !name.startsWith("."),
    );
    expect(templates).toEqual([]);
    await expect(client.create({ name: "m3", image: "multi" })).rejects.toMatchObject({
      code: "image_not_found",
    });
  });
});

test("an image of one static program makes an agent that runs it, on a disk of any size", async () => {
  const { client } = under;
  await made(["import", join(work, "scratch.tar"), "--name", "scratch"]);
  await client.create({ name: "s1", image: "scratch", diskBytes: 64 * 1024 ** 3 });
  expect(await ownPrograms(client, "s1", ["/app", "serve"])).toMatchObject([
    { running: true, user: "root" },
  ]);
  expect(await shown("s1", ["/app", "facts"])).toMatch(
    /^uid=0 gid=0 groups=0 folder=\/ HOME=\/root /,
  );
  await expect(client.exec("s1", ["/bin/sh"])).rejects.toMatchObject({ code: "exec_failed" });
  await client.sleep("s1");
  await client.wake("s1");
  expect(await ownPrograms(client, "s1", ["/app", "serve"])).toMatchObject([{ running: true }]);
  await client.remove("s1");
  await client.images.remove("scratch");
});
