/** The list of processes, signals, and forgetting. */
import { describe, expect, test } from "vitest";
import { refuses } from "../refusal.ts";
import { collect, ended } from "./output.ts";
import { DEADLINE_MS, type GuestLinkRig } from "./rig.ts";

export function processTests(rig: GuestLinkRig): void {
  describe("processes", () => {
    test("running and ended ones are listed with how they ended", async () => {
      const link = await rig.letOut();
      const long = await link.exec(rig.shell("sleep 60"));
      const short = await link.exec(rig.shell("exit 7"));
      await ended(link, short.process);
      const views = await link.processes();
      const running = views.find((view) => view.process === long.process);
      const over = views.find((view) => view.process === short.process);
      expect(running).toMatchObject({
        running: true,
        exit: null,
        pid: long.pid,
        user: rig.subject.user,
      });
      expect(running?.argv).toEqual(["/bin/sh", "-c", "sleep 60"]);
      expect(Math.abs((running?.startedAtMs ?? 0) - Date.now())).toBeLessThan(120_000);
      expect(over).toMatchObject({ running: false, exit: { exitCode: 7, signal: null } });
      await link.signal(long.process, 9, true, DEADLINE_MS);
      link.close("test");
    });

    test("a list that is longer than a frame is whole", async () => {
      const link = await rig.letOut();
      const started: number[] = [];
      for (let i = 0; i < 90; i++) {
        const argv = ["/bin/echo", "x".repeat(1000)];
        started.push((await link.exec({ ...rig.shell(""), argv })).process);
      }
      const listed = (await link.processes()).map((view) => view.process);
      expect(listed).toEqual(expect.arrayContaining(started));
      expect(listed).toEqual([...new Set(listed)].sort((a, b) => a - b));
      link.close("test");
    });

    test("SIGKILL to the tree answers when it is gone", async (context) => {
      rig.needs(context, "kill-tree");
      const link = await rig.letOut();
      const { process } = await link.exec(rig.shell("sleep 60"));
      await link.signal(process, 9, true, DEADLINE_MS);
      const pieces = await collect(link, process, 0);
      expect(pieces.at(-1)).toMatchObject({ type: "exit", exitCode: null, signal: 9 });
      link.close("test");
    });

    test("only an ended process is forgotten", async () => {
      const link = await rig.letOut();
      const { process } = await link.exec(rig.shell("sleep 60"));
      await refuses(link.forget(process), "process_running");
      await link.signal(process, 9, true, DEADLINE_MS);
      await ended(link, process);
      await link.forget(process);
      await refuses(collect(link, process, 0), "process_not_found");
      link.close("test");
    });
  });
}
