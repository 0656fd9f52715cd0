/**
 * The simulation: histories drawn from seeds. PERDURE_SIM_HISTORIES sets how many (200),
 * PERDURE_SIM_SEED where they begin; a failure prints its seed and everything that was done.
 */
import { expect, test } from "vitest";
import { History } from "./history.ts";

const histories = Number(process.env["PERDURE_SIM_HISTORIES"] ?? 200);
const firstSeed = Number(process.env["PERDURE_SIM_SEED"] ?? 1);

test(`${histories} histories with faults, crashes and restarts keep I1, I2, I3, I4 and I10`, async () => {
  const failed: string[] = [];
  for (let seed = firstSeed; seed < firstSeed + histories; seed++) {
    try {
      await new History(seed).run();
    } catch (error) {
      failed.push(
        `PERDURE_SIM_SEED=${seed}: ${error instanceof Error ? error.message : String(error)}`,
      );
      if (failed.length === 3) break;
    }
  }
  expect(failed.join("\n\n")).toBe("");
}, 600_000);
