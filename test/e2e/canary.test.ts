/**
 * 64 random bytes go through everything that an agent has: memory, page cache, disk, the output of a
 * program. When it is removed they are gone from all that the next agents are made of. What is looked
 * through is the host's own: memory of the VM processes, and every file of the data directory.
 */
import { randomBytes } from "node:crypto";
import {
  closeSync,
  globSync,
  linkSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { agentIdSchema } from "@perdure/protocol";
import { openKeyRing } from "@perdure/daemon/checkpoints/key-ring.ts";
import { DaemonUnderTest } from "./daemon-under-test.ts";
import { machineOf } from "./host-view.ts";

const PIECE_BYTES = 1024 * 1024;
const zeros = Buffer.alloc(PIECE_BYTES);

describe("a canary in an agent that is removed", () => {
  const under = new DaemonUnderTest();
  // Beside the data directory: a link cannot lead to another file system.
  const aside = mkdtempSync(join(tmpdir(), "perdure-canary-"));
  const canary = randomBytes(64);
  /** Host keys, the canary, and what stands for them in text. */
  const secrets = new Map<string, Buffer>();
  const outputs: string[] = [];
  let key = Buffer.alloc(0);

  beforeAll(() => under.start());
  afterAll(async () => {
    rmSync(aside, { recursive: true, force: true });
    expect(await under.end()).toEqual([]);
  });

  function hide(name: string, bytes: Buffer): void {
    secrets.set(name, bytes);
    secrets.set(`${name} as hex`, Buffer.from(bytes.toString("hex")));
    secrets.set(`${name} as base64`, Buffer.from(bytes.toString("base64")));
  }

  /** Puts the canary into all that agent "bird" has, and keeps programs that hold on to it. */
  async function spread(): Promise<void> {
    const { client } = under;
    await client.writeFile("bird", "/home/user/canary", canary);
    await under.sh("bird", "sync; cat /home/user/canary > /dev/shm/canary; rm -f /tmp/c");
    const hold = `open(my $f, "<:raw", "/home/user/canary"); read($f, my $held, 64);
      $| = 1; print $held; sleep 3600`;
    const handle = await client.exec("bird", ["/usr/bin/perl", "-e", hold]);
    const got: Buffer[] = [];
    for await (const event of handle.output()) {
      if (event.type === "output") got.push(Buffer.from(event.bytes));
      if (Buffer.concat(got).length >= 64) break;
    }
    expect(Buffer.concat(got).equals(canary)).toBe(true);
    const env = { CANARY: canary.toString("hex") };
    const printed = await client.run("bird", ["/bin/sh", "-c", "echo $CANARY"], { env });
    expect(Buffer.from(printed.stdout).toString().trim()).toBe(canary.toString("hex"));
  }

  test("C2B while its agent lives the canary is where it must be: in memory, on disk, and not in its packs", async () => {
    const { client } = under;
    hide("the canary", canary);
    const { id } = await client.create({ name: "bird" });
    const clean = findInMemory(machineOf(under, id), secrets);
    expect(clean).toEqual([]);
    await spread();
    const found = findInMemory(machineOf(under, id), secrets);
    expect(found).toEqual(expect.arrayContaining(["the canary", "the canary as hex"]));
    const layers = findInFiles(join(under.home, "agents", id, "layers"), secrets);
    expect(layers.some((hit) => hit.includes("the canary"))).toBe(true);

    await client.sleep("bird");
    const keyRing = await openKeyRing(under.home);
    key = Buffer.from(
      await keyRing.agentKey(
        join(under.home, "agents", id, "key.wrapped"),
        agentIdSchema.parse(id),
      ),
    );
    hide("the agent's key", key);
    hide("the host's key", readFileSync(join(under.home, "keys", "host.key")));
    for (const part of ["packs", "checkpoints", "bases"]) {
      expect(findInFiles(join(under.home, "agents", id, part), secrets)).toEqual([]);
    }
    expect(globSync(join(under.home, "agents", id, "packs", "*")).length).toBeGreaterThan(0);
    expect(elsewhere(id)).toEqual([]);

    // Woken from its packs, memory has it again; the checks above were not blind.
    await client.wake("bird");
    expect(findInMemory(machineOf(under, id), secrets)).toContain("the canary");
    await client.sleep("bird");
  });

  test("C2B its key is overwritten where it lies, then everything of it is gone", async () => {
    const { client } = under;
    const { id } = await client.show("bird");
    const wrapped = join(under.home, "agents", id, "key.wrapped");
    const second = join(aside, "key.wrapped");
    const before = readFileSync(wrapped);
    linkSync(wrapped, second);
    const packs = globSync(join(under.home, "agents", id, "packs", "*"));
    for (const [i, pack] of packs.entries()) linkSync(pack, join(aside, `pack-${i}`));

    await client.remove("bird");
    expect(readdirSync(join(under.home, "agents"))).toEqual([]);
    const after = readFileSync(second);
    expect(after.length).toBe(before.length);
    expect(sharedBytes(before, after)).toBeLessThan(16);
    const keyRing = await openKeyRing(under.home);
    await expect(keyRing.agentKey(second, agentIdSchema.parse(id))).rejects.toMatchObject({
      code: "checkpoint_key_missing",
    });
    // Whoever kept the packs has bytes that only the key could open.
    expect(packs.length).toBeGreaterThan(0);
    expect(findInFiles(aside, secrets)).toEqual([]);
    expect(elsewhere("")).toEqual([]);
  });

  test("C2B after remove, sleep and reuse nothing of it is in new agents' memory, disks, output or logs", async () => {
    const { client } = under;
    const names = ["bird", "second", "third"];
    for (const name of names) {
      const { id } = await client.create({ name });
      // Pages and blocks are used again: fill a part of both.
      await under.sh(
        name,
        "head -c 8000000 /dev/zero > /home/user/fill; sync; cat /home/user/fill > /dev/shm/fill",
      );
      const printed = await client.run(
        name,
        ["/bin/sh", "-c", "dmesg | tail -50; env; cat /proc/meminfo"],
        {
          user: "root",
        },
      );
      outputs.push(Buffer.from(printed.stdout).toString("latin1"));
      expect(findInMemory(machineOf(under, id), secrets)).toEqual([]);
      await client.sleep(name);
      await client.wake(name);
      expect(findInMemory(machineOf(under, id), secrets)).toEqual([]);
    }
    // The spares that wait for the next agents as well.
    for (const pid of under.vmPids()) expect(findInMemory(pid, secrets)).toEqual([]);
    expect(findIn(Buffer.from(outputs.join("\n"), "latin1"), secrets)).toEqual([]);
    expect(elsewhere("")).toEqual([]);
  });

  test("no key and no canary is in the database, the logs, the run folder or a process's arguments", async () => {
    const arguments_ = under.vmPids().map((pid) => readFileSync(`/proc/${pid}/cmdline`));
    expect(findIn(Buffer.concat(arguments_), secrets)).toEqual([]);
    await under.kill();
    expect(findIn(readFileSync(join(under.home, "perdure.db")), secrets)).toEqual([]);
    expect(elsewhere("")).toEqual([]);
    await under.start();
  });

  /** Files of the data directory with one of the secrets, but for the folder of `agentId` and the keys. */
  function elsewhere(agentId: string): string[] {
    const log = findIn(Buffer.from(under.log), secrets).map((name) => `daemon's log: ${name}`);
    const files = findInFiles(under.home, secrets).filter(
      (hit) =>
        !(agentId !== "" && hit.startsWith(`agents/${agentId}/`)) &&
        !hit.startsWith("keys/host.key:"),
    );
    return [...log, ...files];
  }
});

function sharedBytes(a: Uint8Array, b: Uint8Array): number {
  return a.filter((byte, i) => byte === b[i]).length;
}

function findIn(bytes: Buffer, needles: ReadonlyMap<string, Buffer>): string[] {
  return [...needles].filter(([, needle]) => bytes.includes(needle)).map(([name]) => name);
}

/** `path: secret` for every regular file below `folder` that holds one; holes are skipped by reading on. */
function findInFiles(folder: string, needles: ReadonlyMap<string, Buffer>): string[] {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true });
  return files
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .flatMap((path) => {
      const hits = scan(path, [[0, Number.POSITIVE_INFINITY]], needles);
      return hits.map((name) => `${relative(folder, path)}: ${name}`);
    });
}

/** The secrets in any readable mapping of a process, the guest's whole memory among them. */
function findInMemory(pid: number, needles: ReadonlyMap<string, Buffer>): string[] {
  const ranges = readFileSync(`/proc/${pid}/maps`, "latin1")
    .split("\n")
    .flatMap((line): [number, number][] => {
      const match = /^([0-9a-f]+)-([0-9a-f]+) r\S+ \S+ \S+ \S+\s*(.*)$/.exec(line);
      if (match === null || match[3] === "[vvar]" || match[3] === "[vsyscall]") return [];
      return [[parseInt(match[1] ?? "", 16), parseInt(match[2] ?? "", 16)]];
    });
  return scan(`/proc/${pid}/mem`, ranges, needles);
}

function scan(
  path: string,
  ranges: readonly (readonly [number, number])[],
  needles: ReadonlyMap<string, Buffer>,
): string[] {
  const found = new Set<string>();
  const overlap = Math.max(...[...needles.values()].map((needle) => needle.length));
  const piece = Buffer.alloc(PIECE_BYTES);
  const file = openSync(path, "r");
  try {
    for (const [start, end] of ranges) {
      for (let at = start; at < end;) {
        const wanted = Math.min(PIECE_BYTES, end - at);
        const read = readPiece(file, piece, wanted, at);
        if (read === 0) break;
        const part = piece.subarray(0, read);
        // Most of a guest's memory was never written.
        if (!part.equals(zeros.subarray(0, read))) {
          for (const name of findIn(part, needles)) found.add(name);
        }
        if (at + read >= end || read < wanted) break;
        at += read - overlap;
      }
    }
  } finally {
    closeSync(file);
  }
  return [...found];
}

/** 0 at the end, and where a mapping cannot be read. */
function readPiece(file: number, piece: Buffer, wanted: number, at: number): number {
  try {
    return readSync(file, piece, 0, wanted, at);
  } catch {
    return 0;
  }
}
