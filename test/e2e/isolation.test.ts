/**
 * What a VM process that was taken over could reach: a program runs with the uid, the groups and the
 * lack of capabilities of a real one and tries everything. Needs root, which gives each a uid.
 */
import { spawnSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { AgentView } from "@perdure/sdk";
import { DaemonUnderTest } from "./daemon-under-test.ts";
import { crash, machineOf } from "./host-view.ts";

const isRoot = process.getuid?.() === 0;
if (!isRoot) console.log("The isolation tests are skipped: VM processes have uids only under root");

interface Credentials {
  readonly uid: number;
  readonly gid: number;
  readonly groups: readonly number[];
}

interface Reach {
  /** Files that can be opened for reading, for writing; sockets that answer. */
  readonly read: readonly string[];
  readonly write: readonly string[];
  readonly connect: readonly string[];
  readonly list: readonly string[];
}

/** Paths come on stdin, one per line; what can be done goes to stdout. Nothing is changed. */
const prober = `
  use Socket; use Fcntl;
  my ($file, $folder);
  while (my $path = <STDIN>) {
    chomp $path;
    print "read $path\\n" if sysopen($file, $path, O_RDONLY | O_NONBLOCK) && -f $file;
    print "write $path\\n" if sysopen($file, $path, O_WRONLY | O_NONBLOCK) && -f $file;
    print "list $path\\n" if opendir($folder, $path);
    socket($file, PF_UNIX, SOCK_STREAM, 0);
    print "connect $path\\n" if length($path) < 108 && connect($file, pack_sockaddr_un($path));
    if ($path =~ m{^/proc/(\\d+)$}) {
      print "signal $path\\n" if kill(0, $1);
      for my $name (qw(mem maps environ root cwd exe fd/0)) {
        print "read $path/$name\\n" if sysopen($file, "$path/$name", O_RDONLY | O_NONBLOCK);
      }
      print "write $path/mem\\n" if sysopen($file, "$path/mem", O_RDWR);
    }
  }`;

describe.skipIf(!isRoot)("what a VM process could reach", () => {
  const under = new DaemonUnderTest();
  let own: AgentView;
  let other: AgentView;

  beforeAll(async () => {
    await under.start();
    const { client } = under;
    own = await client.create({ name: "own" });
    other = await client.create({ name: "other" });
    // Both have a layer of their own below the top, packs, and a kept checkpoint.
    for (const name of ["own", "other"]) {
      await under.sh(name, "echo data > /home/user/data; sync", "user");
      await client.checkpoint(name, { name: "kept" });
      await client.sleep(name);
      await client.wake(name);
    }
    await client.create({ name: "third" });
    await client.sleep("third");
  });
  afterAll(async () => {
    expect(await under.end()).toEqual([]);
  });

  function inHome(path: string): string {
    return relative(under.home, path);
  }

  /** Everything in the data directory, as root lists it. */
  function everything(): string[] {
    return [
      under.home,
      ...readdirSync(under.home, { recursive: true, withFileTypes: true }).map((entry) =>
        join(entry.parentPath, entry.name),
      ),
    ];
  }

  function reach(as: Credentials, paths: readonly string[]): Reach & { signal: string[] } {
    const { stdout, stderr, status } = spawnSync(
      "setpriv",
      [
        `--reuid=${as.uid}`,
        `--regid=${as.gid}`,
        as.groups.length === 0 ? "--clear-groups" : `--groups=${as.groups.join(",")}`,
        "--no-new-privs",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "/usr/bin/perl",
        "-e",
        prober,
      ],
      { input: paths.join("\n"), encoding: "utf8", cwd: "/", maxBuffer: 64 * 1024 * 1024 },
    );
    expect([status, stderr]).toEqual([0, ""]);
    const lines = stdout.split("\n").map((line) => line.split(" "));
    const of = (verb: string): string[] =>
      lines.flatMap(([what, path = ""]) => (what === verb ? [path] : [])).sort();
    return {
      read: of("read"),
      write: of("write"),
      connect: of("connect"),
      list: of("list"),
      signal: of("signal"),
    };
  }

  test("each VM process has a uid and a gid of its own, no capabilities, and no way to new ones", () => {
    const pids = under.vmPids();
    expect(pids.length).toBeGreaterThanOrEqual(2);
    const uids = new Set<number>();
    for (const pid of pids) {
      const { uid, gid } = credentialsOf(pid);
      expect(uid).toBeGreaterThan(0);
      expect(gid).toBe(uid);
      uids.add(uid);
      const status = readFileSync(`/proc/${pid}/status`, "utf8");
      for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]) {
        expect(status).toMatch(new RegExp(`^${set}:\\s0+$`, "m"));
      }
      expect(status).toMatch(/^NoNewPrivs:\s1$/m);
      expect(status).toMatch(/^Seccomp:\s2$/m);
    }
    expect(uids.size).toBe(pids.length);
  });

  test("it reads its own layers and the tenant's base, writes its top and that base, and nothing else", () => {
    const pid = machineOf(under, own.id);
    const { read, write, list } = reach(credentialsOf(pid), everything());
    const run = `run/vm/${vmOf(pid)}/`;
    const layers = join("agents", own.id, "layers");
    const mayRead = (path: string): boolean =>
      path.startsWith(`${layers}/`) ||
      path.startsWith(run) ||
      /^tenants\/default\/.*\/(base|layer\.qcow2)$/.test(path);
    const top = readdirSync(join(under.home, layers)).sort().at(-1) ?? "";
    const mayWrite = (path: string): boolean =>
      path === join(layers, top) ||
      path.startsWith(`${run}io/`) ||
      /^tenants\/default\/.*\/base$/.test(path);
    expect(read.map(inHome).filter((path) => !mayRead(path))).toEqual([]);
    expect(write.map(inHome).filter((path) => !mayWrite(path))).toEqual([]);
    // The judge sees what there is to see: its own files can be opened.
    expect(read.map(inHome)).toContain(join(layers, top));
    expect(write.map(inHome)).toContain(join(layers, top));
    expect(
      list.map(inHome).filter((path) => !`${path}/`.startsWith(run) && path !== "run/vm"),
    ).toEqual([]);
  });

  test("neither keys nor database, log or another agent's files can be opened, nor the daemon's socket", () => {
    const paths = everything();
    const guarded = paths.filter(
      (path) =>
        /^(keys|perdure\.db|home-id|run\/daemon)|^agents\//.test(inHome(path)) &&
        !inHome(path).startsWith(`agents/${own.id}/layers`),
    );
    expect(guarded.some((path) => path.endsWith("host.key"))).toBe(true);
    expect(guarded.some((path) => path.endsWith("perdure.db"))).toBe(true);
    expect(guarded.some((path) => path.includes(`${other.id}/layers/dl_`))).toBe(true);
    expect(guarded.some((path) => path.includes(`${own.id}/packs/pk_`))).toBe(true);
    expect(guarded.some((path) => path.endsWith("key.wrapped"))).toBe(true);
    const found = reach(credentialsOf(machineOf(under, own.id)), [...guarded, under.socket]);
    expect(found).toEqual({ read: [], write: [], connect: [], list: [], signal: [] });
  });

  test("another VM's memory, sockets and process are out of reach, and the daemon's", () => {
    const pid = machineOf(under, own.id);
    const neighbours = under.vmPids().filter((one) => one !== pid);
    expect(neighbours.length).toBeGreaterThan(0);
    const sockets = everything().filter(
      (path) => /\/(qmp|link)$/.test(path) && !path.includes(vmOf(pid)),
    );
    expect(sockets.length).toBeGreaterThan(0);
    const daemon = under.pid ?? 0;
    const targets = [...neighbours, daemon, process.pid].map((one) => `/proc/${one}`);
    const found = reach(credentialsOf(pid), [...targets, ...sockets]);
    const { read, write, connect, signal } = found;
    expect({ read, write, connect, signal }).toEqual({
      read: [],
      write: [],
      connect: [],
      signal: [],
    });
    // The same program as root finds all of it.
    const root = reach({ uid: 0, gid: 0, groups: [] }, sockets);
    expect(root.read).toEqual([]);
  });

  test("without the tenant's group its base cannot be opened at all", () => {
    const pid = machineOf(under, own.id);
    const { uid, gid, groups } = credentialsOf(pid);
    const bases = everything().filter((path) => /^tenants\/.*\/base$/.test(inHome(path)));
    expect(bases.length).toBeGreaterThan(0);
    const inside = reach({ uid, gid, groups }, bases);
    expect(inside.read).toEqual(bases.sort());
    const outside = reach({ uid, gid, groups: [gid] }, bases);
    expect([outside.read, outside.write]).toEqual([[], []]);
    const stranger = reach({ uid: 65_534, gid: 65_534, groups: [] }, everything());
    const { read, write } = stranger;
    const public_ = /^tenants\/default\/.*\/layer\.qcow2$/;
    expect(read.map(inHome).filter((path) => !public_.test(path))).toEqual([]);
    expect(write).toEqual([]);
  });

  test("what a uid could open is closed to its next holder once the machine is gone", async () => {
    const before = credentialsOf(machineOf(under, own.id));
    await under.client.sleep("own");
    const files = everything().filter((path) => path.includes(own.id));
    const asleep = reach(before, files);
    expect([asleep.read.map(inHome), asleep.write.map(inHome)]).toEqual([[], []]);
    await under.client.wake("own");
    // The same where it ended while no daemon watched.
    const machine = machineOf(under, own.id);
    const again = credentialsOf(machine);
    await under.kill();
    await crash(under, own.id);
    await under.start();
    const failed = reach(
      again,
      everything().filter((path) => path.includes(own.id)),
    );
    expect([failed.read.map(inHome), failed.write.map(inHome)]).toEqual([[], []]);
    await under.client.wake("own");
    expect(await under.sh("own", "cat /home/user/data")).toBe("data");
  });
});

function credentialsOf(pid: number): Credentials {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const numbers = (name: string): number[] =>
    (new RegExp(`^${name}:\\s*(.*)$`, "m").exec(status)?.[1] ?? "")
      .trim()
      .split(/\s+/)
      .filter((field) => field !== "")
      .map(Number);
  return { uid: numbers("Uid")[0] ?? 0, gid: numbers("Gid")[0] ?? 0, groups: numbers("Groups") };
}

/** The machine's id, which is the name of its run folder. */
function vmOf(pid: number): string {
  const command = readFileSync(`/proc/${pid}/cmdline`, "utf8");
  return /perdure-[0-9a-f]+-(vm_[0-9a-z]+)/.exec(command)?.[1] ?? "none";
}
