/** Every connection is an epoch of its own. */
import { describe, expect, test } from "vitest";
import { refuses } from "../refusal.ts";
import { DEADLINE_MS, type GuestLinkRig } from "./rig.ts";

export function epochTests(rig: GuestLinkRig): void {
  describe("epoch", () => {
    test("every connection begins a new epoch that answers", async () => {
      for (let i = 0; i < 5; i++) {
        const link = await rig.synced();
        const info = await link.info(DEADLINE_MS);
        expect(info.version).not.toBe("");
        link.close("test");
        expect(await link.closed).toBe("test");
      }
    });

    test("a call before sync is refused", async () => {
      const link = await rig.subject.connect();
      await refuses(link.info(DEADLINE_MS), "guest_unreachable");
      link.close("test");
    });

    test("a second sync is refused", async () => {
      const link = await rig.synced();
      await refuses(link.sync(rig.nextGeneration(), DEADLINE_MS), "internal");
      link.close("test");
    });

    test("calls after close are refused with the reason", async () => {
      const link = await rig.letOut();
      link.close("sleep");
      const error = await refuses(link.processes(), "interrupted");
      expect(error.details["reason"]).toBe("sleep");
    });
  });
}
