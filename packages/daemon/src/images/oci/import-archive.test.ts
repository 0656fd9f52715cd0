/** From archives made byte by byte to file systems, looked into with debugfs. No VM. */
import { link, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import os from "node:os";
import path from "node:path";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import {
  archive,
  dockerFiles,
  file,
  folder,
  hardlink,
  layer,
  ociArchive,
  ociFiles,
  symlink,
  tar,
} from "../../../../../test/contract/container-archive.ts";
import { makeBaseImage } from "../../../../../test/contract/base-image.ts";
import type { ImageSample } from "../../../../../test/contract/container-archive.ts";
import type { Image } from "../../core/ports/image-source.ts";
import { runTool } from "../tool-process.ts";
import { importArchive } from "./import-archive.ts";

let directory: string;
let imports = 0;

async function makeDirectory(): Promise<void> {
  directory = await mkdtemp(path.join(os.tmpdir(), "perdure-import-"));
  await makeBaseImage(directory);
}

async function removeDirectory(): Promise<void> {
  await rm(directory, { recursive: true });
}

async function importBytes(
  bytes: Buffer,
  {
    name = "sample",
    start = true,
    reference,
  }: { name?: string; start?: boolean; reference?: string } = {},
): Promise<Image> {
  const workspace = path.join(directory, `.work-${String((imports += 1))}`);
  await mkdir(workspace);
  try {
    await writeFile(path.join(workspace, "archive"), bytes);
    return await importArchive({
      directory,
      workspace,
      archive: path.join(workspace, "archive"),
      name,
      start,
      report: () => undefined,
      ...(reference === undefined ? {} : { reference }),
    });
  } finally {
    await rm(workspace, { recursive: true });
  }
}

/** Everything in the images directory, by name. */
async function everything(): Promise<string[]> {
  return (await readdir(directory, { recursive: true })).filter((name) => name !== ".lock").sort();
}

function look(image: Image, request: string): Promise<string> {
  return runTool("debugfs", ["-R", request, image.rootfs?.path ?? ""]);
}

const capability = Buffer.from("0100000200200080000000000000000000000000", "hex");
const passwd = file(
  "etc/passwd",
  "root:x:0:0:root:/root:/bin/sh\napp:x:70000:70001::/srv:/bin/sh\n",
);

const sample: ImageSample = {
  layers: [
    layer([
      folder("./", { mode: 0o755 }),
      folder("etc/"),
      passwd,
      file("etc/group", "root:x:0:\nstaff:x:50:\n"),
      symlink("etc/resolv.conf", "/run/systemd/resolve/stub-resolv.conf"),
      file("bin/tool", "tool", {
        mode: 0o4750,
        uid: 70_000,
        gid: 50,
        mtime: 1_600_000_000,
        pax: { "SCHILY.xattr.security.capability": capability, "SCHILY.xattr.user.note": "hi" },
      }),
      hardlink("bin/same", "bin/tool"),
      symlink("bin/link", "../bin/tool"),
      symlink("bin/long", `/${"t".repeat(200)}`),
      folder("sticky/", {
        mode: 0o1777,
        uid: 5,
        mtime: 1_500_000_000,
        pax: { "SCHILY.xattr.user.d": "1" },
      }),
      file("gone", "x"),
      file("opaque/old", "x"),
      { name: "dev/null", type: "3" },
      { name: "opt/dev", type: "4" },
      { name: "opt/fifo", type: "6", mode: 0o622 },
      file(`deep/${"n".repeat(200)}`, "long"),
      file('caf\xe9 "quoted"\n', "odd"),
    ]),
    layer([file(".wh.gone"), file("opaque/.wh..wh..opq"), file("opaque/new", "y")], "zstd"),
    layer(
      [
        file("hole", "ab", {
          pax: { "GNU.sparse.size": "1048578", "GNU.sparse.map": "0,1,1048577,1" },
        }),
      ],
      "none",
    ),
  ],
  config: {
    User: "app:staff",
    Env: ["PATH=/bin", "A=1", "A=2"],
    WorkingDir: "srv/work",
    Entrypoint: ["/bin/tool"],
    Cmd: ["serve"],
    StopSignal: "SIGQUIT",
    Labels: { maintainer: "someone" },
    ExposedPorts: { "80/tcp": {} },
    Volumes: { "/data": {} },
  },
};

describe("an image of several layers", () => {
  let image: Image;

  beforeAll(async () => {
    await makeDirectory();
    image = await importBytes(ociArchive(sample));
  });
  afterAll(removeDirectory);

  test("an image's files keep owners, modes, times, attributes, links and holes", async () => {
    const tool = await look(image, "stat /bin/tool");
    expect(tool).toMatch(/Mode:\s+04750/);
    expect(tool).toMatch(/User: 70000\s+Group:\s+50/);
    expect(tool).toMatch(/Links: 2/);
    expect(tool).toMatch(/mtime: 0x5f5e1000/);
    expect(await look(image, "ea_get -x /bin/tool security.capability")).toContain(
      capability.toString("hex").replace(/(..)/g, "$1 ").trim(),
    );
    expect(await look(image, "ea_list /bin/tool")).toContain('user.note (2) = "hi"');
    expect(await look(image, "stat /sticky")).toMatch(
      /Mode:\s+01777[^]*User:\s+5 [^]*mtime: 0x59682f00/,
    );
    expect(await look(image, "ea_list /sticky")).toContain("user.d");
    expect(await look(image, "stat /bin/link")).toContain('Fast link dest: "../bin/tool"');
    expect(await look(image, "stat /bin/long")).toMatch(/Type: symlink[^]*Size: 201/);
    const inode = /Inode: (\d+)/.exec(tool)?.[1] ?? "none";
    expect(await look(image, "stat /bin/same")).toContain(`Inode: ${inode} `);
    expect(await look(image, "stat /opt/fifo")).toMatch(/Type: FIFO\s+Mode:\s+0622/);
    expect(await look(image, `cat /deep/${"n".repeat(200)}`)).toBe("long");
    const hole = await look(image, "stat /hole");
    expect(hole).toMatch(/Size: 1048578/);
    expect(hole).toMatch(/Blockcount: 16/);
    const root = await runTool("debugfs", ["-R", "ls -l /", image.rootfs?.path ?? ""]);
    expect(root).not.toContain("gone");
    expect(await look(image, "ls -p /opaque")).not.toContain("old");
    expect(await look(image, "cat /opaque/new")).toBe("y");
    await runTool("e2fsck", ["-f", "-n", image.rootfs?.path ?? ""]);
  });

  test("names that are no text are kept, byte for byte", async () => {
    const bytes = await readFile(image.rootfs?.path ?? "");
    expect(bytes.includes(Buffer.from('caf\xe9 "quoted"\n', "latin1"))).toBe(true);
  });

  test("what a VM needs and a container lacks is there", async () => {
    for (const name of [
      "/dev",
      "/proc",
      "/sys",
      "/run",
      "/tmp",
      "/srv/work",
      "/etc/perdure/resume.d",
    ]) {
      expect(await look(image, `stat ${name}`)).toContain("Type: directory");
    }
    expect(await look(image, "stat /tmp")).toMatch(/Mode:\s+01777/);
    expect(await look(image, "stat /etc/resolv.conf")).toMatch(/Type: regular[^]*Size: 0/);
    expect(await look(image, "cat /etc/hosts")).toContain("127.0.0.1 localhost");
    expect(await look(image, "cat /etc/hostname")).toBe("perdure\n");
  });

  test("the configuration is kept, and what was left out is said", () => {
    expect(image.config).toEqual({
      user: "app:staff",
      cwd: "/srv/work",
      env: { PATH: "/bin", A: "2" },
      entrypoint: ["/bin/tool"],
      cmd: ["serve"],
      start: true,
      stopSignal: "SIGQUIT",
      labels: { maintainer: "someone" },
      exposedPorts: ["80/tcp"],
      volumes: ["/data"],
    });
    expect(image.archive?.notices).toEqual(['Device nodes were left out: "/opt/dev"']);
    expect(image).toMatchObject({
      kernelVersion: "6.1.0-test",
      commandLine: "perdure.root=/dev/vda",
    });
  });
});

describe("an import", () => {
  beforeEach(makeDirectory);
  afterEach(removeDirectory);

  test("the same image in each kind of archive is one image, and under each name", async () => {
    const first = await importBytes(ociArchive(sample));
    const before = await everything();
    const docker = archive(dockerFiles([{ ...sample, tags: ["app:1"] }]));
    for (const bytes of [
      ociArchive(sample),
      gzipSync(ociArchive(sample)),
      zstdCompressSync(docker),
      archive(ociFiles([sample], true)),
    ]) {
      expect((await importBytes(bytes)).id).toBe(first.id);
    }
    expect(await everything()).toEqual(before);
    expect((await importBytes(docker, { name: "other" })).id).toBe(first.id);
    expect((await readFile(path.join(directory, "names/other"), "utf8")).trim()).toBe(first.id);
    expect((await importBytes(docker, { start: false })).id).not.toBe(first.id);
  });

  test("two imports of one archive at once give one image", async () => {
    const [one, two] = await Promise.all([
      importBytes(ociArchive(sample), { name: "one" }),
      importBytes(ociArchive(sample), { name: "two" }),
    ]);
    expect(one.id).toBe(two.id);
    const ids = (await readdir(directory)).filter((name) => /^[0-9a-f]{64}$/.test(name));
    expect(ids).toHaveLength(2);
  });

  test("an image of one static program is an image", async () => {
    const image = await importBytes(
      ociArchive({
        layers: [layer([file("app", "program", { mode: 0o755 })])],
        config: { Entrypoint: ["/app"] },
      }),
    );
    expect(image.config).toMatchObject({ user: "root", cwd: "/", env: {}, entrypoint: ["/app"] });
  });

  test("an image without a user runs programs as its account user, where it has one", async () => {
    const accounts = file(
      "etc/passwd",
      "root:x:0:0::/:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n",
    );
    const image = await importBytes(ociArchive({ layers: [layer([accounts])] }));
    expect(image.config?.user).toBe("user");
  });

  test("an image whose accounts are a link has them", async () => {
    const layers = [
      layer([
        file("usr/etc/passwd", "app:x:9:9::/:/bin/sh\n"),
        symlink("etc/passwd", "../usr/etc/passwd"),
      ]),
    ];
    expect((await importBytes(ociArchive({ layers, config: { User: "app" } }))).config?.user).toBe(
      "app",
    );
    await expect(
      importBytes(ociArchive({ layers, config: { User: "nobody" } })),
    ).rejects.toMatchObject({ code: "image_archive_invalid" });
  });

  test("what is mounted over is a folder, whatever the image has there", async () => {
    const layers = [layer([symlink("run", "/var/run"), file("proc", "x"), symlink("dev", "/etc")])];
    const image = await importBytes(ociArchive({ layers }));
    for (const name of ["/run", "/proc", "/dev"]) {
      expect(await look(image, `stat ${name}`)).toContain("Type: directory");
    }
  });

  test("folders for temporary files are everybody's, unless a layer says otherwise", async () => {
    const inside = await importBytes(
      ociArchive({ layers: [layer([file("tmp/a", "x"), file("var/tmp/b", "x")])] }),
    );
    for (const name of ["/tmp", "/var/tmp"]) {
      expect(await look(inside, `stat ${name}`)).toMatch(/Mode:\s+01777/);
    }
    const said = await importBytes(
      ociArchive({ layers: [layer([folder("tmp/", { mode: 0o700 }), file("tmp/a", "x")])] }),
    );
    expect(await look(said, "stat /tmp")).toMatch(/Mode:\s+0700/);
  });

  test("an image whose folders for an agent's identity are none is refused, and they are named", async () => {
    const before = await everything();
    for (const [entries, message] of [
      [[symlink("etc", "usr/etc"), file("usr/etc/passwd", "")], /"\/etc" is a symbolic link/],
      [[symlink("etc/ssh", "../usr/ssh")], /"\/etc\/ssh" is a symbolic link/],
      [[file("etc/ssh", "x")], /"\/etc\/ssh" is a file/],
    ] as const) {
      const refused = await importBytes(ociArchive({ layers: [layer([...entries])] })).then(
        () => null,
        (error: unknown) => error,
      );
      expect(refused).toMatchObject({ code: "not_supported" });
      expect(String(refused)).toMatch(message);
    }
    expect(await everything()).toEqual(before);
  });

  test("links that lead out of the image touch nothing of the host", async () => {
    const outside = path.join(directory, "outside");
    await mkdir(outside);
    await writeFile(path.join(outside, "file"), "host");
    const up = `${"../".repeat(30)}${outside.slice(1)}`;
    const image = await importBytes(
      ociArchive({
        layers: [
          layer([symlink("abs", outside), symlink("up", up), symlink("proc-root", "/proc/1/root")]),
          layer([
            file("abs/file", "guest"),
            file("up/other", "guest"),
            file("proc-root/x", "guest"),
          ]),
        ],
      }),
    );
    expect(await readdir(outside)).toEqual(["file"]);
    expect(await readFile(path.join(outside, "file"), "utf8")).toBe("host");
    expect(await look(image, `cat ${outside}/file`)).toBe("guest");
    expect(await look(image, `cat ${outside}/other`)).toBe("guest");
  });

  test("an archive that is refused leaves nothing", async () => {
    const before = await everything();
    const bad = [
      ociArchive({ layers: [layer([symlink("etc", "/etc")]), layer([file("etc/passwd", "x")])] }),
      ociArchive({ layers: [layer([file("../x")])] }),
      ociArchive({ layers: [layer([passwd])], config: { User: "ghost" } }),
      tar([file("x")]),
      Buffer.from("no archive"),
      Buffer.alloc(0),
      gzipSync(ociArchive(sample)).subarray(0, 400),
    ];
    for (const bytes of bad) {
      await expect(importBytes(bytes)).rejects.toMatchObject({ code: "image_archive_invalid" });
    }
    expect(await everything()).toEqual(before);
  });

  test("kernel and initramfs of an import are the base image's own files", async () => {
    const image = await importBytes(ociArchive(sample));
    await rm(path.join(directory, "names/debian"));
    await expect(importBytes(ociArchive({ layers: [] }))).rejects.toMatchObject({
      code: "image_not_found",
    });
    // Still whole without the other.
    await link(image.kernel.path, path.join(directory, "k2"));
    expect(await readFile(path.join(directory, "k2"), "utf8")).toBe("debian kernel");
  });
});
