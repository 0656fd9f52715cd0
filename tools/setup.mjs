/**
 * Makes a checkout ready to use, as far as it is not: system packages, dependencies, the guest agent,
 * the default image. Runs on Node 20 with nothing installed. A browser and servers, which only the longest tests
 * need, are installed where they are asked for.
 *
 *     node tools/setup.mjs [--only packages,deps,guest,image,browser,servers] [--then FILE ARGS…]
 *
 * Progress goes to standard error. With --then, Node 24 runs FILE afterwards and its exit is ours.
 * What a step depends on is kept as a digest in node_modules/.cache, so a second run costs little.
 */
import { spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { constants, accessSync, existsSync, mkdirSync, readFileSync, readdirSync } from "node:fs";
import { renameSync, writeFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { performance } from "node:perf_hooks";
import { fileURLToPath } from "node:url";

const root = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const stampFile = path.join(root, "node_modules/.cache/perdure-setup.json");
const guestAgent = path.join(root, "guest/build/perdure-guest");
const builder = path.join(root, "packages/daemon/src/images/build-image.ts");
const nodeMajorMin = 24;
const usage =
  "Usage: node tools/setup.mjs [--only packages,deps,guest,image,browser,servers] [--then FILE ARGS…]";

const isRoot = process.getuid?.() === 0;

/** A program (or file) that must be there → the Debian and Ubuntu package that has it. */
const requirements = {
  "qemu-system-x86_64": "qemu-system-x86",
  "qemu-img": "qemu-utils",
  mmdebstrap: "mmdebstrap",
  "/usr/share/keyrings/debian-archive-keyring.gpg": "debian-archive-keyring",
  mke2fs: "e2fsprogs",
  resize2fs: "e2fsprogs",
  setfattr: "attr",
  depmod: "kmod",
  xz: "xz-utils",
  setpriv: "util-linux",
  make: "make",
  gcc: "gcc",
  "musl-gcc": "musl-tools",
  "/usr/include/linux/bpf.h": "linux-libc-dev",
  // Without root, owners come from a user namespace and from fakeroot.
  ...(isRoot ? {} : { newuidmap: "uidmap", fakeroot: "fakeroot" }),
};

class SetupError extends Error {}

const steps = { packages, deps, guest, image, browser, servers };
const always = ["packages", "deps", "guest", "image"];

/** Each step returns false where there was nothing to do. */
function packages() {
  return install(requirements);
}

function browser() {
  return install({ chromium: "chromium", certutil: "libnss3-tools" });
}

function servers() {
  return install({ git: "git", sshd: "openssh-server", "/usr/lib/postgresql": "postgresql" });
}

/** Debian packages of programs and files that are missing. */
function install(wanted) {
  const missing = [
    ...new Set(
      Object.entries(wanted)
        .filter(([name]) => (name.startsWith("/") ? !existsSync(name) : findProgram(name) === null))
        .map(([, name]) => name),
    ),
  ];
  if (missing.length === 0) return false;
  const command = `apt-get install --yes --no-install-recommends ${missing.join(" ")}`;
  if (findProgram("apt-get") === null) {
    throw new SetupError(
      `This host lacks ${missing.join(", ")} (names of Debian packages).\n` +
        "Set-up installs packages on Debian and Ubuntu only; install their like by hand.",
    );
  }
  if (!isRoot) {
    throw new SetupError(
      `Packages are missing. Install them, then run the same command again:\n\n  sudo ${command}\n`,
    );
  }
  note(`installing ${missing.join(" ")}`);
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive" };
  run("apt-get", ["-qq", "update"], { env });
  run("apt-get", ["-qq", ...command.split(" ").slice(1)], { env });
  return true;
}

function deps() {
  const key = digest([path.join(root, "package-lock.json")]);
  const node = findNode();
  if (node !== null && stamp().deps === key && existsSync(installedLock())) return false;
  if (node !== null && existsSync(installedLock()) && lockIsInstalled()) {
    keep({ deps: key }); // installed by hand
    return false;
  }
  installDependencies();
  if (findNode() === null) {
    throw new SetupError(
      `Node ${nodeMajorMin} is not available for ${process.platform} ${process.arch} as a dependency.\n` +
        `Install Node ${nodeMajorMin} and run the same command with it.`,
    );
  }
  keep({ deps: key });
  return true;
}

function installDependencies() {
  note("running npm ci");
  run("npm", ["ci", "--no-audit", "--no-fund", "--loglevel=error"], { cwd: root });
}

function guest() {
  const folder = path.join(root, "guest");
  if (!existsSync(path.join(folder, "Makefile"))) {
    throw new SetupError(`Cannot build the guest agent: "${folder}/Makefile" does not exist.`);
  }
  const key = digest(sourceFiles(folder));
  if (stamp().guest === key && existsSync(guestAgent)) return false;
  run("make", ["-s", "-C", folder]);
  if (!existsSync(guestAgent)) {
    throw new SetupError(`"make -C guest" did not make "${guestAgent}".`);
  }
  keep({ guest: key });
  return true;
}

function image() {
  const directory = imagesDirectory();
  if (!existsSync(guestAgent)) {
    throw new SetupError('Cannot build the image: run the step "guest" first.');
  }
  const sources = sourceFiles(path.dirname(builder)).filter((file) => !file.endsWith(".test.ts"));
  const key = `${directory} ${digest([guestAgent, ...sources])}`;
  if (stamp().image === key && namedImageExists(directory, "debian")) return false;
  const node = findNode();
  if (node === null) throw new SetupError('Cannot build the image: run the step "deps" first.');
  run(node, [builder, "--images", directory, "--name", "debian", "--guest", guestAgent], {
    stdio: ["ignore", "ignore", "inherit"],
  });
  keep({ image: key });
  return true;
}

/** The same rule as `defaultImagesDirectory` of the daemon, which cannot be imported here yet. */
function imagesDirectory() {
  const { PERDURE_IMAGES: chosen, HOME: home } = process.env;
  if (chosen !== undefined && chosen !== "") return path.resolve(chosen);
  if (isRoot) return "/var/lib/perdure/images";
  return path.join(home ?? os.homedir(), ".local/share/perdure/images");
}

function namedImageExists(directory, name) {
  try {
    const id = readFileSync(path.join(directory, "names", name), "utf8").trim();
    return existsSync(path.join(directory, id, "image.json"));
  } catch {
    return false;
  }
}

function findProgram(name) {
  const folders = [...(process.env.PATH ?? "").split(":"), "/usr/sbin", "/sbin", "/usr/local/sbin"];
  for (const folder of folders) {
    const file = path.join(folder, name);
    try {
      accessSync(file, constants.X_OK);
      return file;
    } catch {
      // not in this folder
    }
  }
  return null;
}

/** Path of a Node that runs TypeScript and has `node:sqlite`: this one, or the dependency's. */
function findNode() {
  if (Number(process.versions.node.split(".")[0]) >= nodeMajorMin) return process.execPath;
  const cpu = process.arch === "arm64" ? "arm64" : "x64";
  const file = path.join(root, `node_modules/node-linux-${cpu}/bin/node`);
  return existsSync(file) ? file : null;
}

function installedLock() {
  return path.join(root, "node_modules/.package-lock.json");
}

/** Whether what npm says it installed is what the lock file asks for, on this platform. */
function lockIsInstalled() {
  const packagesOf = (file) => JSON.parse(readFileSync(file, "utf8")).packages;
  const installed = packagesOf(installedLock());
  return Object.entries(packagesOf(path.join(root, "package-lock.json"))).every(([at, wanted]) => {
    if (at === "" || wanted.optional || wanted.devOptional || wanted.peer) return true;
    const found = installed[at];
    return found !== undefined && found.version === wanted.version && found.link === wanted.link;
  });
}

/** Files below `folder`, sorted, without what builds and tests leave there. */
function sourceFiles(folder) {
  return readdirSync(folder, { withFileTypes: true })
    .filter(({ name }) => name !== "build" && !name.startsWith("."))
    .flatMap((entry) => {
      const file = path.join(folder, entry.name);
      return entry.isDirectory() ? sourceFiles(file) : [file];
    })
    .sort();
}

function digest(files) {
  const hash = createHash("sha256");
  for (const file of files) {
    const content = readFileSync(file);
    hash.update(`${path.relative(root, file)}\0${content.length}\0`).update(content);
  }
  return hash.digest("hex");
}

function stamp() {
  try {
    return JSON.parse(readFileSync(stampFile, "utf8"));
  } catch {
    return {};
  }
}

function keep(entries) {
  const text = JSON.stringify({ ...stamp(), ...entries }, null, 2);
  mkdirSync(path.dirname(stampFile), { recursive: true });
  writeFileSync(`${stampFile}.${process.pid}`, text);
  renameSync(`${stampFile}.${process.pid}`, stampFile);
}

/** Runs a program with its output on our standard error; our standard output is data. */
function run(command, args, options = {}) {
  const { status, signal, error } = spawnSync(command, args, {
    stdio: ["ignore", 2, 2],
    ...options,
  });
  if (error !== undefined) throw new SetupError(`Cannot run "${command}": ${error.message}`);
  if (status !== 0) {
    throw new SetupError(
      `"${command} ${args.join(" ")}" ended with ${signal ?? `code ${status}`}.`,
    );
  }
}

function note(text) {
  console.error(`  ${text}`);
}

function parse(args) {
  const then = args.indexOf("--then");
  const own = then < 0 ? args : args.slice(0, then);
  const command = then < 0 ? [] : args.slice(then + 1);
  let only = always;
  if (own[0] === "--only" && own.length === 2) only = own[1].split(",");
  else if (own.length > 0) return null;
  if (only.some((name) => !Object.hasOwn(steps, name))) return null;
  if (then >= 0 && command.length === 0) return null;
  return { only, command };
}

/** Runs Node 24 on `command`, passes signals on, and ends as it ends. */
function hand(node, command) {
  const child = spawn(node, command, { stdio: "inherit" });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"]) {
    // A terminal sends all but SIGTERM to the child too: passed on, they would count twice there.
    const fromTerminal = process.stdin.isTTY && signal !== "SIGTERM";
    process.on(signal, () => fromTerminal || child.kill(signal));
  }
  child.on("error", (error) => {
    console.error(`Cannot run "${node}": ${error.message}`);
    process.exitCode = 1;
  });
  child.on("exit", (code, signal) => {
    process.exitCode = signal === null ? (code ?? 1) : 128 + os.constants.signals[signal];
  });
}

function main() {
  const request = parse(process.argv.slice(2));
  if (request === null) {
    console.error(usage);
    process.exitCode = 2;
    return;
  }
  for (const name of Object.keys(steps).filter((step) => request.only.includes(step))) {
    const started = performance.now();
    try {
      const changed = steps[name]();
      const seconds = ((performance.now() - started) / 1000).toFixed(2);
      console.error(`setup: ${name.padEnd(8)} ${changed ? "done" : "already done"} (${seconds} s)`);
    } catch (error) {
      if (!(error instanceof SetupError)) throw error;
      console.error(`setup: ${name.padEnd(8)} failed\n${error.message}`);
      process.exitCode = 1;
      return;
    }
  }
  if (request.command.length === 0) return;
  const node = findNode();
  if (node === null) {
    console.error(
      `Cannot run "${request.command[0]}": Node ${nodeMajorMin} is missing. Run npm ci.`,
    );
    process.exitCode = 1;
    return;
  }
  hand(node, request.command);
}

main();
