import { expect, test } from "vitest";
import { cleanEnvironment, runTool } from "./tool-process.ts";

test("a tool's output is returned and its error lines are passed on", async () => {
  const lines: string[] = [];
  const output = await runTool("sh", ["-c", "echo out; echo one >&2; echo two >&2"], {
    onLine: (line) => lines.push(line),
  });
  expect(output).toBe("out\n");
  expect(lines).toEqual(["one", "two"]);
});

test("a tool that fails says how and why", async () => {
  await expect(runTool("sh", ["-c", "echo no such suite >&2; exit 3"])).rejects.toMatchObject({
    code: "image_build_failed",
    message: '"sh" ended with exit code 3\nno such suite',
  });
  await expect(runTool("perdure-no-such-tool", [])).rejects.toMatchObject({
    code: "image_build_failed",
  });
});

test("a full disk is told from other failures", async () => {
  const script = "echo 'tar: x: Cannot write: No space left on device' >&2; exit 2";
  await expect(runTool("sh", ["-c", script])).rejects.toMatchObject({ code: "disk_full" });
});

test("tools see nothing of the host's environment but the way out", () => {
  const host = { SECRET: "x", SSL_CERT_FILE: "/ca.pem", HOME: "/root", http_proxy: "http://p:1" };
  const environment = cleanEnvironment(host);
  expect(environment).toMatchObject({ http_proxy: "http://p:1", HOME: "/nonexistent" });
  expect(Object.keys(environment)).not.toContain("SECRET");
  expect(Object.keys(environment)).not.toContain("SSL_CERT_FILE");
});

test("a tool reads what it is given", async () => {
  const bytes = async function* (): AsyncGenerator<Buffer> {
    yield Buffer.from("one ");
    yield await Promise.resolve(Buffer.alloc(1 << 20, "x"));
  };
  expect(await runTool("wc", ["-c"], { stdin: bytes() })).toBe(`${(1 << 20) + 4}\n`);
});

test("a tool whose input fails is ended, and the failure is told", async () => {
  const broken = async function* (): AsyncGenerator<Buffer> {
    yield await Promise.resolve(Buffer.from("x"));
    throw new Error("the layer is broken");
  };
  await expect(runTool("cat", [], { stdin: broken() })).rejects.toThrow("the layer is broken");
});

test("a tool that stops reading tells why itself", async () => {
  const endless = async function* (): AsyncGenerator<Buffer> {
    for (;;) yield await Promise.resolve(Buffer.alloc(1 << 16));
  };
  await expect(
    runTool("sh", ["-c", "echo no room >&2; exit 4"], { stdin: endless() }),
  ).rejects.toMatchObject({ message: '"sh" ended with exit code 4\nno room' });
});

test("a tool ends although something that it started goes on and holds its output", async () => {
  const script = "setsid sleep 100 & echo $!";
  const left = Number(await runTool("/bin/sh", ["-c", script]));
  expect(left).toBeGreaterThan(1);
  process.kill(left, "SIGKILL");
});
