import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";

// Tiers: `unit` runs beside the sources and starts no VM; `vm` needs a machine with QEMU and the
// prepared image, runs its files one at a time, and gives each step a generous deadline.
/** As packages/sdk/src/launch.mjs has it, for threads that tests start. */
const execArgv = ["--wasm-wrapper-tiering-budget=2147483647"];

export default defineConfig({
  test: {
    teardownTimeout: 60_000,
    projects: [
      {
        test: {
          name: "unit",
          execArgv,
          include: [
            "packages/*/src/**/*.test.ts",
            "bench/**/*.test.ts",
            "test/{contract,simulation}/**/*.test.ts",
            "tools/**/*.test.ts",
          ],
          // One core fewer, which is vitest's own choice, is one worker where there are two.
          maxWorkers: Math.max(2, availableParallelism() - 1),
          // Deadlines are for what hangs: a busy host takes tens of times as long as a quiet one.
          testTimeout: 120_000,
          hookTimeout: 120_000,
          expect: { poll: { timeout: 60_000 } },
        },
      },
      {
        test: {
          name: "vm",
          execArgv,
          include: ["test/{e2e,crash,substrate,kvm-bare}/**/*.test.ts"],
          fileParallelism: false,
          testTimeout: 300_000,
          expect: { poll: { timeout: 120_000 } },
          hookTimeout: 300_000,
        },
      },
    ],
  },
});
