/** What is refused until the agent is let out. */
import { describe, test } from "vitest";
import { refuses } from "../refusal.ts";
import { collect } from "./output.ts";
import { DEADLINE_MS, type GuestLinkRig } from "./rig.ts";

export function boundaryTests(rig: GuestLinkRig): void {
  describe("boundary", () => {
    test("user operations are refused until the agent is let out", async () => {
      const link = await rig.synced();
      await refuses(link.exec(rig.shell("true")), "agent_state");
      await refuses(link.processes(), "agent_state");
      await refuses(collect(link, 1, 0), "agent_state");
      await refuses(link.writeStdin(1, new Uint8Array(1), false), "agent_state");
      await refuses(link.signal(1, 9, true, DEADLINE_MS), "agent_state");
      await refuses(link.forget(1), "agent_state");
      await refuses(link.stat(rig.subject.folder, rig.subject.user), "agent_state");
      await refuses(link.readFile(`${rig.subject.folder}/f`, rig.subject.user), "agent_state");
      await refuses(rig.write(link, "f", "text"), "agent_state");
      await link.info(DEADLINE_MS);
      link.letOut();
      await link.processes();
      link.close("test");
    });
  });
}
