import { expect, test } from "vitest";
import { assertTools } from "./host-tool.ts";
import type { HostTool } from "./host-tool.ts";

test("tools that are there are found, and what is missing is named with its package", async () => {
  await assertTools(["tar", "mke2fs"]);
  await expect(assertTools(["tar", "perdure-no-such-tool" as HostTool])).rejects.toMatchObject({
    code: "host_not_ready",
    message: expect.stringContaining('"perdure-no-such-tool"') as string,
  });
});
