/**
 * What `perdure` says and how it ends where something fails with a real VM: exit codes of exec, and what
 * hints name after a reboot inside and after a VM that died.
 */
import { afterAll, beforeAll, expect, test } from "vitest";
import { DaemonUnderTest, until } from "./daemon-under-test.ts";

const under = new DaemonUnderTest();

beforeAll(async () => {
  await under.start();
  await under.client.create({ name: "f", onCrash: "disk" });
});
afterAll(async () => {
  expect(await under.end()).toEqual([]);
});

test("exec ends as the program ends, and with 125 to 127 where there was none", async () => {
  const ends: [code: number, ...words: string[]][] = [
    [0, "true"],
    [3, "sh", "-c", "exit 3"],
    [125, "--user", "nobody-here", "true"],
    [125, "--cwd", "/no/such/folder", "true"],
    [125, "--attach", "4000000"],
    [126, "/etc"],
    [126, "/etc/hostname"],
    [127, "/no/such/program"],
    [127, "no-such-program"],
    [137, "sh", "-c", "kill -KILL $$"],
    [143, "sh", "-c", "kill -TERM $$"],
  ];
  for (const [code, ...words] of ends) {
    expect(await under.perdure(["exec", "f", ...words]), words.join(" ")).toMatchObject({ code });
  }
  expect((await under.perdure(["exec", "nobody", "true"])).code).toBe(125);
});

test("who follows a program through a reboot is not sent back to its number", async () => {
  const followed = under.perdure(["exec", "f", "sleep", "600"]);
  await until("the program", async () => (await under.client.processes("f")).some(isSleep));
  await under.client.exec("f", ["sh", "-c", "echo b > /proc/sysrq-trigger"], { user: "root" });
  const { code, stderr } = await followed;
  expect(code).toBe(125);
  expect(stderr).toContain("Hint: `perdure processes f`");
  expect(stderr).not.toContain("--attach");
});

test("a VM that died: show names the way back, report says that it is of before", async () => {
  await until("the reboot", async () => (await under.client.show("f")).state === "awake");
  const { generation } = await under.client.show("f");
  for (const pid of under.vmPids()) process.kill(pid, "SIGKILL");
  await until("the failure", async () => (await under.client.show("f")).state === "failed");
  const { stdout } = await under.perdure(["show", "f"]);
  expect(stdout).toMatch(/\nway back +"perdure wake f" recovers it/);
  const report = await under.perdure(["report", "f"]);
  expect(report.stdout).toMatch(new RegExp(`\ngeneration +${generation} `));
  expect(report.stdout).toContain('Agent "f" is failed now (crashed: ');
  expect((await under.perdure(["wake", "f"])).stdout).toContain("recovered from its newest disk");
  expect((await under.perdure(["wake", "f"])).stdout).toMatch(/is awake, and was before/);
});

function isSleep({ argv, running }: { argv: readonly string[]; running: boolean }): boolean {
  return running && argv[0] === "sleep";
}
