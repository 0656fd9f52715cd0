import { execFileSync } from "node:child_process";
import { gunzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { writeCpio } from "./cpio.ts";
import { buildInitramfs } from "./initramfs.ts";

const modules = [
  { name: "virtio_ring", content: Buffer.from("ring") },
  { name: "virtio", content: Buffer.from("core!") },
];

interface Entry {
  mode: number;
  owner: string;
  device: string;
  content: Buffer;
}

/** Reads a newc archive as the kernel does. */
function readCpio(archive: Buffer): Map<string, Entry> {
  const entries = new Map<string, Entry>();
  for (let at = 0; ;) {
    expect(archive.toString("ascii", at, at + 6)).toBe("070701");
    const field = (index: number): number =>
      Number.parseInt(archive.toString("ascii", at + 6 + index * 8, at + 14 + index * 8), 16);
    const [size, nameSize] = [field(6), field(11)];
    const name = archive.toString("utf8", at + 110, at + 110 + nameSize - 1);
    const start = at + ((110 + nameSize + 3) & ~3);
    if (name === "TRAILER!!!") return entries;
    entries.set(name, {
      mode: field(1),
      owner: `${field(2)}:${field(3)}`,
      device: `${field(9)}:${field(10)}`,
      content: archive.subarray(start, start + size),
    });
    at = start + ((size + 3) & ~3);
  }
}

test("an initramfs holds the agent as /init, the modules, and their order", () => {
  const entries = readCpio(gunzipSync(buildInitramfs(Buffer.from("agent"), modules)));
  expect(entries.get("init")).toMatchObject({ mode: 0o100755, owner: "0:0" });
  expect(entries.get("init")?.content.toString()).toBe("agent");
  expect(entries.get("modules.list")?.content.toString()).toBe(
    "/modules/virtio_ring.ko\n/modules/virtio.ko\n",
  );
  expect(entries.get("modules/virtio.ko")?.content.toString()).toBe("core!");
  expect(entries.get("dev/console")).toMatchObject({ mode: 0o020600, device: "5:1" });
  for (const name of ["dev", "proc", "sys", "run", "newroot"]) {
    expect(entries.get(name)).toMatchObject({ mode: 0o040755 });
  }
});

test("a directory comes before what is in it", () => {
  const names = [...readCpio(gunzipSync(buildInitramfs(Buffer.from("agent"), modules))).keys()];
  expect(names.indexOf("modules")).toBeLessThan(names.indexOf("modules/virtio.ko"));
  expect(names.indexOf("dev")).toBeLessThan(names.indexOf("dev/console"));
});

test("equal input gives equal bytes", () => {
  const first = buildInitramfs(Buffer.from("agent"), modules);
  expect(buildInitramfs(Buffer.from("agent"), modules).equals(first)).toBe(true);
  expect(buildInitramfs(Buffer.from("Agent"), modules).equals(first)).toBe(false);
});

test("the cpio tool reads what is written", ({ skip }) => {
  try {
    execFileSync("cpio", ["--version"]);
  } catch {
    skip("cpio is not installed");
  }
  const archive = writeCpio([
    { kind: "directory", path: "etc", mode: 0o755 },
    { kind: "file", path: "etc/name", mode: 0o644, content: Buffer.from("seven b") },
    { kind: "character-device", path: "null", mode: 0o666, major: 1, minor: 3 },
  ]);
  const listing = execFileSync("cpio", ["-itv", "--quiet"], { input: archive, encoding: "utf8" });
  expect(listing).toMatch(/^drwxr-xr-x.* etc$/m);
  expect(listing).toMatch(/^-rw-r--r--.* 7 .*etc\/name$/m);
  expect(listing).toMatch(/^crw-rw-rw-.*1, +3 .*null$/m);
});
