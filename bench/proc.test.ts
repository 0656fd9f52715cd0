import { spawn } from "node:child_process";
import { once } from "node:events";
import { expect, test } from "vitest";
import {
  commandLine,
  cpuTicks,
  descendants,
  findProcesses,
  killExactly,
  parseSmaps,
  residentBytes,
  startTicks,
} from "./proc.ts";

const smaps = `7f0000000000-7f0020000000 rw-p 00000000 00:00 0 
Size:             524288 kB
Rss:                2048 kB
Pss:                1500 kB
Pss_Dirty:          1400 kB
Anonymous:          1024 kB
VmFlags: rd wr mr mw me ac sd
7fff00000000-7fff00021000 rw-p 00000000 00:00 0                          [stack]
Pss:                  24 kB
Anonymous:            24 kB
`;

test("memory areas are read with size, share and own pages", () => {
  expect(parseSmaps(smaps)).toEqual([
    {
      address: 0x7f0000000000,
      bytes: 512 * 1024 * 1024,
      pssBytes: 1500 * 1024,
      anonymousBytes: 1024 * 1024,
    },
    { address: 0x7fff00000000, bytes: 0x21000, pssBytes: 24 * 1024, anonymousBytes: 24 * 1024 },
  ]);
});

test("a process is known by pid and start", () => {
  expect(startTicks(process.pid)).toBeGreaterThan(0);
  expect(cpuTicks(process.pid)).toBeGreaterThanOrEqual(0);
  expect(startTicks(2 ** 22 + 1)).toBeNull();
  expect(commandLine(process.pid).length).toBeGreaterThan(0);
});

test("a process with another start is left alone", () => {
  killExactly(process.pid, 1);
  killExactly(process.pid, null);
});

test("what a process started is found, and what that started", async () => {
  const child = spawn("sh", ["-c", "sleep 60 & echo $!; wait"], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  try {
    const [line] = (await once(child.stdout, "data")) as [Buffer];
    const found = descendants(process.pid);
    expect(found).toContain(child.pid);
    expect(found).toContain(Number(line));
    expect(descendants(child.pid ?? 0)).toEqual([Number(line)]);
    process.kill(Number(line));
  } finally {
    child.kill("SIGKILL");
  }
});

test("a process has memory, part of it in no file", () => {
  const { whole, anonymous } = residentBytes(process.pid);
  expect(anonymous).toBeGreaterThan(0);
  expect(whole).toBeGreaterThan(anonymous);
});

test("the searching process does not find itself", () => {
  expect(findProcesses(() => true)).not.toContain(process.pid);
});
