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
