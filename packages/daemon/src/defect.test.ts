import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const run = promisify(execFile);

test("a failure that nobody waits for is told and ends nothing", async () => {
  const module = JSON.stringify(new URL("./defect.ts", import.meta.url).href);
  const program = `import { tellOfDefects } from ${module};
    tellOfDefects((level, message, facts) => console.log(JSON.stringify({ level, ...facts })));
    void Promise.reject(new Error("too late"));
    setImmediate(() => console.log("goes on"));`;
  const { stdout } = await run(process.execPath, ["--input-type=module", "-e", program]);
  const [told = "", ...rest] = stdout.trim().split("\n");
  const { level, stack } = JSON.parse(told) as { level: string; stack: string };
  expect([level, rest]).toEqual(["error", ["goes on"]]);
  expect(stack).toMatch(/^Error: too late\n/);
});
