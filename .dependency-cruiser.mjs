// The star: protocol ← core ← adapters ← daemon.ts; sdk ← cli. No cycles anywhere.
const adapters = "^packages/daemon/src/(state|checkpoints|substrate|guest-link|images|egress|api)/";

/** @type {import("dependency-cruiser").IConfiguration} */
export default {
  forbidden: [
    { name: "no-cycles", severity: "error", from: {}, to: { circular: true } },
    {
      name: "protocol-imports-nothing-of-ours",
      severity: "error",
      from: { path: "^packages/protocol/" },
      to: { path: "^packages/(?!protocol/)" },
    },
    {
      name: "core-imports-protocol-and-itself",
      severity: "error",
      from: { path: "^packages/daemon/src/core/", pathNot: "\\.test\\.ts$" },
      to: { pathNot: "^packages/(daemon/src/core|protocol)/" },
    },
    {
      name: "adapters-never-import-each-other",
      severity: "error",
      from: { path: adapters, pathNot: "\\.test\\.ts$" },
      to: { path: adapters, pathNot: "^packages/daemon/src/$1/" },
    },
    {
      name: "only-the-composition-root-names-adapters",
      severity: "error",
      from: {
        path: "^packages/daemon/src/",
        pathNot: `${adapters}|/(daemon|main)\\.ts$|\\.test\\.ts$`,
      },
      to: { path: adapters },
    },
    {
      name: "sdk-imports-protocol-only",
      severity: "error",
      from: { path: "^packages/sdk/" },
      to: { path: "^packages/(?!(sdk|protocol)/)" },
    },
    {
      name: "cli-imports-sdk-and-protocol-only",
      severity: "error",
      from: { path: "^packages/cli/", pathNot: "\\.test\\.ts$" },
      to: { path: "^packages/(?!(cli|sdk|protocol)/)" },
    },
  ],
  options: {
    doNotFollow: { path: "node_modules" },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: "tsconfig.json" },
    enhancedResolveOptions: { exportsFields: ["exports"], conditionNames: ["import", "node"] },
  },
};
