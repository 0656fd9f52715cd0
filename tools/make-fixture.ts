/**
 * Makes test/fixtures/checkpoint-v1.tar.zst: a data directory with one sleeping agent of the `tiny` image
 * (kernel and guest agent, no root file system), complete with base, packs, device state, manifest and
 * keys made for it alone. It is made once per released format and then kept: a test wakes it for ever.
 *
 *     node tools/setup.mjs --then tools/make-fixture.ts OUTPUT
 */
import { execFileSync, spawn } from "node:child_process";
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Perdure } from "@perdure/sdk";

const output = process.argv[2];
if (output === undefined) {
  console.error("Usage: make-fixture.ts OUTPUT");
  process.exit(2);
}
const source = process.env["PERDURE_IMAGES"] ?? "/var/lib/perdure/images";
const folder = mkdtempSync(join(tmpdir(), "perdure-fixture-"));
// VM processes run as users of their own and pass through here.
chmodSync(folder, 0o755);
const home = join(folder, "home");
const images = join(folder, "images");
const id = readFileSync(join(source, "names", "tiny"), "utf8").trim();
mkdirSync(join(images, "names"), { recursive: true });
cpSync(join(source, id), join(images, id), { recursive: true });
cpSync(join(source, "names", "tiny"), join(images, "names", "tiny"));

const daemon = spawn(
  process.execPath,
  [
    resolve("packages/daemon/bin/perdured.mjs"),
    "--home",
    home,
    "--images",
    images,
    "--spares",
    "0",
  ],
  { stdio: ["ignore", "inherit", "inherit"], env: { ...process.env, PERDURE_ACCELERATOR: "tcg" } },
);
const ended = new Promise((done) => daemon.once("exit", done));
const perdure = new Perdure({ socketPath: join(home, "run", "perdure.sock") });
while ((await perdure.health().catch(() => null)) === null) {
  await new Promise((next) => setTimeout(next, 50));
}
await perdure.create({
  name: "fixture",
  image: "tiny",
  memoryBytes: 128 * 1024 ** 2,
  diskBytes: 2 * 1024 ** 3,
});
// What it printed is in the guest agent's memory: that is what the test asks for after the wake.
await perdure.run("fixture", ["/init", "--version"], { user: "root" });
await perdure.sleep("fixture");
await perdure.shutdown();
await ended;
rmSync(join(home, "run"), { recursive: true });
rmSync(join(home, "cache"), { recursive: true, force: true });
rmSync(join(images, "templates"), { recursive: true, force: true });
execFileSync(
  "tar",
  ["--sparse", "--use-compress-program=zstd -19", "-cf", resolve(output), "home", "images"],
  { cwd: folder, stdio: "inherit" },
);
rmSync(folder, { recursive: true });
