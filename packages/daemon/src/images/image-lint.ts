/**
 * Refuses a root file system that holds secrets or an identity of its own. Every agent is a copy of
 * the image: a key in it is shared by all of them, and whoever gets an image gets the key.
 *
 * Runs on the unpacked tree before it is packed. Symbolic links are never followed.
 */
import { lstat, open, readFile, readdir } from "node:fs/promises";
import path from "node:path";
import { PerdureError } from "@perdure/protocol";

export type LintRule =
  | "private-key"
  | "credential-file"
  | "password"
  | "fixed-identity"
  | "host-trace"
  | "local-authority"
  | "setuid"
  | "build-leftover";

export interface LintFinding {
  readonly rule: LintRule;
  /** Path inside the tree, starting with "/". */
  readonly path: string;
  readonly message: string;
}

export interface LintOptions {
  /** The only host name that the tree may have. */
  readonly defaultHostName: string;
  /** Name of the host that builds; looked for in settings where it is distinctive. */
  readonly buildHostName: string;
  /** Programs that may gain rights when run, beside those of essential packages. */
  readonly setuid?: readonly string[];
}

/** Programs of Debian's essential packages that gain rights when run. */
const setuidAllowed = new Set([
  "/usr/bin/chage",
  "/usr/bin/chfn",
  "/usr/bin/chsh",
  "/usr/bin/expiry",
  "/usr/bin/gpasswd",
  "/usr/bin/mount",
  "/usr/bin/newgrp",
  "/usr/bin/passwd",
  "/usr/bin/su",
  "/usr/bin/umount",
  "/usr/sbin/unix_chkpwd",
]);

/** Libraries that carry published keys for their self-tests. */
const publicTestKeys = /^\/usr\/lib\/x86_64-linux-gnu\/libgnutls\.so\.[\d.]+$/;

const keyFileNames =
  /^(id_(rsa|dsa|ecdsa|ed25519)(_sk)?|ssh_host_\w+_key|secring\.gpg|.*\.(p12|pfx|ppk|jks))$/;

const credentialFiles =
  /(^|\/)(\.netrc|\.npmrc|\.yarnrc(\.yml)?|\.pypirc|\.git-credentials|\.pgpass|\.my\.cnf|\.vault-token|\.bash_history|\.python_history|\.aws\/.+|\.azure\/.+|\.docker\/config\.json|\.kube\/.+|\.config\/(gcloud|gh|git\/credentials)(\/.+)?|\.ssh\/.+|\.gnupg\/.+|etc\/apt\/auth\.conf(\.d\/.+)?)$/;

const identityFiles = new Set([
  "/etc/machine-id",
  "/var/lib/dbus/machine-id",
  "/etc/hostid",
  "/var/lib/systemd/random-seed",
  "/var/lib/systemd/credential.secret",
  "/var/lib/urandom/random-seed",
  "/var/lib/random-seed",
  "/var/lib/misc/random-seed",
  "/var/lib/NetworkManager/secret_key",
  "/etc/iscsi/initiatorname.iscsi",
]);

const buildLeftovers =
  /^\/(var\/lib\/apt\/lists\/.*(Packages|Release|Translation).*|var\/cache\/apt\/(.*\.deb|.*\.bin)|var\/log\/(apt|dpkg)\/?.*\.log)$/;

/** Names that say nothing about a host. */
const genericHostNames = new Set(["localhost", "debian", "ubuntu", "perdure", "linux", "host"]);
const distinctiveLengthMin = 4;

/** Files above this length are searched for keys in pieces of it. */
const pieceBytes = 1 << 20;
/** Longest match of {@link privateKey}: pieces overlap by this much. */
const overlapBytes = 128;
/** A PEM key with some of its content: programs that only mention the header do not match. */
const privateKey =
  /-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----\s{1,4}(?:[A-Za-z0-9+/=]{16}|Proc-Type|Version|\n)|PuTTY-User-Key-File-\d:/;

/** Everything wrong with the tree at `root`, in order of path. */
export async function lintTree(root: string, options: LintOptions): Promise<LintFinding[]> {
  const findings: LintFinding[] = [];
  for await (const entry of walk(root, "/")) {
    const found = (rule: LintRule, message: string): void => {
      findings.push({ rule, path: entry.path, message });
    };
    if (!entry.isFile) continue;
    const base = path.posix.basename(entry.path);
    const mayGain = setuidAllowed.has(entry.path) || options.setuid?.includes(entry.path) === true;
    if ((entry.mode & 0o6000) !== 0 && !mayGain) {
      found("setuid", "Gains rights when run and is not on the list of programs that may");
    }
    if (keyFileNames.test(base) || entry.path.startsWith("/etc/ssl/private/")) {
      found("private-key", "Is named like a private key");
    } else if (
      !publicTestKeys.test(entry.path) &&
      (await holdsPrivateKey(path.join(root, entry.path), entry.bytes))
    ) {
      found("private-key", "Contains a private key");
    }
    if (entry.bytes > 0 && credentialFiles.test(entry.path)) {
      found("credential-file", "Is where credentials or a history are kept");
    }
    if (entry.bytes > 0 && identityFiles.has(entry.path)) {
      found("fixed-identity", "Would be the same in every agent");
    }
    if (buildLeftovers.test(entry.path)) found("build-leftover", "Was left behind by the build");
    if (entry.path.startsWith("/usr/local/share/ca-certificates/")) {
      found("local-authority", "Is a certificate authority of the host that built the image");
    }
    if (entry.path.startsWith("/etc/") && entry.bytes < pieceBytes) {
      const text = await readFile(path.join(root, entry.path), "latin1");
      for (const [rule, message] of lintSetting(entry.path, text, options)) found(rule, message);
    }
  }
  return findings;
}

/** @throws PerdureError `image_lint_failed` with every finding in its message. */
export async function refuseUncleanTree(root: string, options: LintOptions): Promise<void> {
  const findings = await lintTree(root, options);
  if (findings.length === 0) return;
  const lines = findings.map(({ rule, path: at, message }) => `  ${rule}: ${at}: ${message}`);
  throw new PerdureError(
    "image_lint_failed",
    `Cannot use the root file system: it holds secrets or a fixed identity\n${lines.join("\n")}`,
    {
      hint: 'Remove these files in the finish script of the recipe; its "setuid" names programs that may gain rights.',
    },
  );
}

/** What is wrong with one file below /etc. */
function* lintSetting(
  file: string,
  text: string,
  options: LintOptions,
): Generator<readonly [LintRule, string]> {
  if (file === "/etc/hostname" && text.trim() !== options.defaultHostName) {
    yield ["fixed-identity", `Names a host other than "${options.defaultHostName}"`];
  }
  if (file === "/etc/resolv.conf" && text.trim() !== "") {
    yield ["host-trace", "Holds name servers of the host that built the image"];
  }
  if (file === "/etc/shadow" || file === "/etc/gshadow") {
    for (const line of text.split("\n")) {
      const [account, password] = line.split(":");
      if (account === undefined || password === undefined) continue;
      const locked = /^[!*]+$/.test(password) || (file === "/etc/gshadow" && password === "");
      if (!locked) yield ["password", `Account "${account}" can log in with a password`];
    }
  }
  if (file.startsWith("/etc/apt/")) {
    if (/^\s*Acquire::\S*Proxy|^\s*Proxy\s/im.test(text)) {
      yield ["host-trace", "Sets a proxy of the host that built the image"];
    }
    if (/:\/\/[^\s/@]+@/.test(text)) yield ["credential-file", "Has a password in an address"];
  }
  const name = options.buildHostName.toLowerCase();
  if (
    name.length >= distinctiveLengthMin &&
    !genericHostNames.has(name) &&
    name !== options.defaultHostName &&
    text
      .toLowerCase()
      .split(/[^a-z0-9.-]+/)
      .includes(name)
  ) {
    yield ["host-trace", "Names the host that built the image"];
  }
}

interface TreeEntry {
  readonly path: string;
  readonly isFile: boolean;
  readonly mode: number;
  readonly bytes: number;
}

async function* walk(root: string, directory: string): AsyncGenerator<TreeEntry> {
  const names = await readdir(path.join(root, directory));
  for (const name of names.sort()) {
    const at = path.posix.join(directory, name);
    const status = await lstat(path.join(root, at));
    yield { path: at, isFile: status.isFile(), mode: status.mode, bytes: status.size };
    if (status.isDirectory()) yield* walk(root, at);
  }
}

async function holdsPrivateKey(file: string, bytes: number): Promise<boolean> {
  if (bytes < 32) return false;
  const handle = await open(file, "r");
  try {
    const piece = Buffer.alloc(Math.min(bytes, pieceBytes + overlapBytes));
    for (let position = 0; position < bytes; position += pieceBytes) {
      const { bytesRead } = await handle.read(piece, 0, piece.length, position);
      const read = piece.subarray(0, bytesRead);
      if (!read.includes("PRIVATE KEY") && !read.includes("PuTTY-User-Key")) continue;
      if (privateKey.test(read.toString("latin1"))) return true;
    }
    return false;
  } finally {
    await handle.close();
  }
}
