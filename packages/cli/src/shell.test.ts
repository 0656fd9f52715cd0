/** `shell` and `exec --tty` on a terminal of this host, by the built command, against the real API. */
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { Perdure, PerdureError } from "@perdure/sdk";
import { openFakeServer } from "../../../test/contract/api/fake-server.ts";
import type { FakeServer } from "../../../test/contract/api/fake-server.ts";
import { Typist } from "../../../test/contract/api/typist.ts";

const bin = join(import.meta.dirname, "..", "bin", "perdure.mjs");
let folder: string;
let fake: FakeServer;
let perdure: Perdure;
const env = () => ({
  ...process.env,
  NODE_OPTIONS: "",
  PERDURE_HOME: folder,
  PERDURE_SOCKET: "",
  PERDURE_AUTOSTART: "0",
  TERM: "vt100",
});

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "perdure-shell-"));
  fake = await openFakeServer(join(folder, "run", "perdure.sock"), folder);
  perdure = new Perdure({ socketPath: fake.socketPath });
  await perdure.create({ name: "a1" });
});
afterEach(async () => {
  await perdure.close();
  await fake.close();
  await rm(folder, { recursive: true, force: true });
});

/** The command alone on its terminal. */
function on(args: string[], size?: [number, number]): Typist {
  return new Typist([process.execPath, bin, ...args], env(), size);
}
/** The terminal's settings before and after the command, with its exit code between. */
function between(args: string): Typist {
  const line = `stty -g; "${process.execPath}" "${bin}" ${args}; echo code=$?; stty -g; echo done`;
  return new Typist(["sh", "-c", line], env());
}
function expectRestored({ shown }: Typist): void {
  const settings = shown.match(/^[0-9a-f]+(:[0-9a-f]+)+\r$/gm) ?? [];
  expect(settings).toHaveLength(2);
  expect(settings[1]).toBe(settings[0]);
}
const processes = () => perdure.processes("a1");

describe("a shell", () => {
  it("whose connection breaks off says what goes on with it", async () => {
    fake.commands.output = () =>
      Promise.reject(new PerdureError("interrupted", "The connection ended", { hint: "Again." }));
    const shell = on(["shell", "a1", "--", "sh"]);
    await shell.until(/Hint: `perdure shell a1 --attach 1 --offset 0` goes on with it\./);
  });

  it("is typed on as if it were here, with the size and kind of this terminal, and ends with its code", async () => {
    const shell = on(["shell", "a1", "--", "sh"], [33, 111]);
    await shell.until(/[$#] $/);
    shell.type("stty size; echo $TERM; echo 'a\tb'\r");
    await shell.until(/33 111\r\nvt100\r\na\tb\r\n/);
    shell.type("exit 7\r");
    expect(await shell.ended).toBe(7);
  });

  it("is the login shell of the user where no program is named", async () => {
    const shell = on(["shell", "a1", "--user", "root"]);
    await shell.until(/[$#] $/);
    shell.type("echo shell=$SHELL\r");
    await shell.until(/shell=\/\S+sh\r/);
    expect(fake.commands.executed.at(-1)).toMatchObject({ kind: "exec", user: "root" });
    shell.type("exit\r");
    expect(await shell.ended).toBe(0);
  });

  it("learns each new size of this terminal", async () => {
    const script = `trap 'stty size' WINCH; echo ready; while [ "$x" != end ]; do read x; done; exit 3`;
    const shell = on(["shell", "a1", "--", "sh", "-c", script]);
    await shell.until(/ready/);
    for (const [rows, columns] of [
      [40, 100],
      [10, 20],
    ] as const) {
      shell.resize(rows, columns);
      await expect
        .poll(() => {
          // A shell that reads hears of a signal when a line has come.
          shell.type("\r");
          return shell.shown.includes(`${rows} ${columns}`);
        })
        .toBe(true);
    }
    shell.type("end\r");
    expect(await shell.ended).toBe(3);
  });

  it("has Ctrl-C go to the program, not to perdure", async () => {
    const shell = between("shell a1 -- sh -c 'echo ready; exec sleep 60'");
    await shell.until(/ready/);
    shell.type("\x03");
    await shell.until(/code=130\r\n[^]*done/);
    expectRestored(shell);
  });

  it("is left with Ctrl-P Ctrl-Q, goes on, and is gone on with from the very byte", async () => {
    const script = "echo ready; read line; echo got $line; read line; exit 5";
    const shell = between(`shell a1 -- sh -c '${script}'`);
    await shell.until(/ready/);
    shell.type("\x10\x11");
    const [, again = ""] = await shell.until(
      /detached; `perdure (shell a1 --attach 1 --offset \d+)`/,
    );
    await shell.until(/code=0\r\n[^]*done/);
    expectRestored(shell);
    expect(await processes()).toMatchObject([{ running: true }]);
    const back = between(again);
    back.type("it\r");
    await back.until(/got it/);
    expect(back.shown).not.toContain("ready");
    back.type("\r");
    await back.until(/code=5\r\n[^]*done/);
    expectRestored(back);
  });

  it("makes a program that it goes on with draw itself anew", async () => {
    const script = `trap 'echo drawn $(stty size)' WINCH; echo ready; while :; do sleep 0.1; done`;
    const terminal = await perdure.terminal("a1", ["sh", "-c", script], { rows: 24, columns: 80 });
    await expect.poll(async () => (await processes())[0]?.logEnd).toBeGreaterThan(6);
    const shell = on(["shell", "a1", "--attach", String(terminal.process)]);
    await shell.until(/drawn 24 80/);
    expect(shell.shown).not.toContain("ready");
    await terminal.signal("SIGKILL");
    expect(await shell.ended).toBe(137);
  });

  it.each(["SIGTERM", "SIGHUP"] as const)(
    "gives the terminal back at %s, and leaves the program",
    async (signal) => {
      const shell = between("shell a1 -- sh -c 'echo ready; exec sleep 60'");
      await shell.until(/ready/);
      const pid = spawnSync("pgrep", ["-f", `${bin} shell a1`], { encoding: "utf8" });
      const [node, ...others] = pid.stdout.trim().split("\n").map(Number).filter(isNode);
      if (node === undefined) throw new Error("There is no command");
      expect(others).toEqual([]);
      process.kill(node, signal);
      await shell.until(/code=1(43|29)\r\n[^]*done/);
      expectRestored(shell);
      expect(await processes()).toMatchObject([{ running: true }]);
    },
  );

  it("says how to go on where the agent sleeps", async () => {
    const shell = between("shell a1 -- sh -c 'echo ready; exec sleep 60'");
    await shell.until(/ready/);
    await perdure.sleep("a1");
    await shell.until(/out of reach: sleep\r\nHint: `perdure shell a1 --attach 1 --offset 7`/);
    await shell.until(/code=125\r\n[^]*done/);
    expectRestored(shell);
  });

  it("gives the terminal back where the daemon is gone", async () => {
    const shell = between("shell a1 -- sh -c 'echo ready; exec sleep 60'");
    await shell.until(/ready/);
    await fake.server.close();
    await shell.until(/code=125\r\n[^]*done/);
    expectRestored(shell);
  });

  it("cannot be opened where there is no such agent, program or process", async () => {
    for (const [args, code] of [
      ["shell a2", 125],
      ["shell a1 -- /no/such/program", 127],
      ["shell a1 --attach 99", 125],
    ] as const) {
      const shell = between(args);
      await shell.until(new RegExp(`perdure: [^]*code=${code}\\r\\n[^]*done`));
      expectRestored(shell);
    }
  });
});

describe("exec --tty", () => {
  it("runs a program on a terminal, and is typed on where this is one", async () => {
    const run = on(["exec", "-t", "a1", "sh", "-c", "tty; read line; echo got $line; exit 6"]);
    await run.until(/\/dev\/pts\/\d+/);
    run.type("it\r");
    await run.until(/got it/);
    expect(await run.ended).toBe(6);
  });

  it("takes what is piped in as typed, and its end as Ctrl-D", async () => {
    const script = "stty -echo; echo ready; cat; exit 4";
    const child = spawn(process.execPath, [bin, "exec", "--tty", "a1", "sh", "-c", script], {
      env: env(),
      stdio: ["pipe", "pipe", "inherit"],
    });
    child.stdin.end("one\ntwo\n");
    const [shown, end] = await Promise.all([text(child.stdout), once(child, "close")]);
    expect(end).toEqual([4, null]);
    expect(shown).toMatch(/one\r\ntwo\r\n$/);
  });

  it("shell, which is for typing, ends where there is nobody to type", async () => {
    const child = spawn(process.execPath, [bin, "shell", "a1", "--", "sh", "-c", "cat; exit 5"], {
      env: env(),
      stdio: ["ignore", "pipe", "inherit"],
    });
    const [, end] = await Promise.all([text(child.stdout), once(child, "close")]);
    expect(end).toEqual([5, null]);
  });
});

/** Not the shell that starts it, nor Python that holds the terminal. */
function isNode(pid: number): boolean {
  const { stdout } = spawnSync("ps", ["-o", "args=", "-p", String(pid)], { encoding: "utf8" });
  return stdout.startsWith(process.execPath);
}
