import { expect, test } from "vitest";
import {
  commandLine,
  cpuTicks,
  findProcesses,
  killExactly,
  parseSmaps,
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

test("the searching process does not find itself", () => {
  expect(findProcesses(() => true)).not.toContain(process.pid);
});
