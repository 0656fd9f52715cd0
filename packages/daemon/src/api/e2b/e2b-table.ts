/**
 * What there is of E2B's API: one table that is served, and that docs/reference/e2b.md is generated from. What is
 * in it and not supported is answered so.
 */
import type { Scope } from "@perdure/protocol";

export interface E2bRoute {
  readonly method: "DELETE" | "GET" | "PATCH" | "POST" | "PUT";
  readonly path: string;
  /** What it does here, or why it is not supported. */
  readonly summary: string;
  /** What a key must allow; null: not supported. */
  readonly scope: Exclude<Scope, "none"> | null;
}

const NO_BUILDS = "Images are built and imported by `perdure image`.";
const NO_TEAMS = "There are no teams.";
const NO_VOLUMES = "There are no volumes.";
const NO_SECRETS = "There are no secrets yet.";

export const e2bRoutes = {
  create: route(
    "POST",
    "/sandboxes",
    "admin",
    "A new agent, by the name of its image or a snapshot's id.",
  ),
  createV2: route("POST", "/v2/sandboxes", "admin", "As `POST /sandboxes`."),
  list: route("GET", "/sandboxes", "read", "Those that run, by metadata."),
  listV2: route(
    "GET",
    "/v2/sandboxes",
    "read",
    "By metadata, state, template and start, in pages, newest first unless `order=asc`.",
  ),
  manyMetrics: route("GET", "/sandboxes/metrics", "read", "Of several that run, now."),
  show: route("GET", "/sandboxes/:sandboxID", "read", "One sandbox."),
  kill: route("DELETE", "/sandboxes/:sandboxID", "admin", "`remove`. Its snapshots go with it."),
  connect: route(
    "POST",
    "/sandboxes/:sandboxID/connect",
    "use",
    "`wake`; extends the time-out, never shortens it. `memory: false` begins anew from the disk.",
  ),
  connectV2: route("POST", "/v2/sandboxes/:sandboxID/connect", "use", "As without `/v2`."),
  resume: route("POST", "/sandboxes/:sandboxID/resume", "use", "As `connect`; 409 where it runs."),
  pause: route(
    "POST",
    "/sandboxes/:sandboxID/pause",
    "use",
    "`sleep`; it is woken by nothing inside. `memory: false` is `stop`. 409 where it is paused.",
  ),
  timeout: route(
    "POST",
    "/sandboxes/:sandboxID/timeout",
    "use",
    "Sets the end, counted from now, sooner or later than it was.",
  ),
  refresh: route("POST", "/sandboxes/:sandboxID/refreshes", "use", "Extends the end."),
  fork: route(
    "POST",
    "/sandboxes/:sandboxID/fork",
    "admin",
    "`fork`, up to 64 of one cut: all are made, or none.",
  ),
  snapshot: route(
    "POST",
    "/sandboxes/:sandboxID/snapshots",
    "use",
    "`checkpoint`. A name is a DNS label that no other checkpoint of the sandbox has.",
  ),
  snapshots: route(
    "GET",
    "/snapshots",
    "read",
    "Named checkpoints, by sandbox and name, in pages.",
  ),
  metrics: route(
    "GET",
    "/sandboxes/:sandboxID/metrics",
    "read",
    "What it uses now, as one entry; none where it does not run. There is no history.",
  ),
  network: route(
    "PUT",
    "/sandboxes/:sandboxID/network",
    "admin",
    "What gets out of it, from now on; connections that it denies are broken off.",
  ),
  deleteTemplate: route("DELETE", "/templates/:templateID", "admin", "Drops a snapshot."),
  alias: route("GET", "/templates/aliases/:alias", "read", "Whether an image has that name."),
  health: route("GET", "/health", "read", "Says that the daemon answers."),
  logs: route(
    "GET",
    "/sandboxes/:sandboxID/logs",
    "read",
    "What became of it, as `perdure events` tells it: there is no other log.",
  ),
  logsV2: route("GET", "/v2/sandboxes/:sandboxID/logs", "read", "The same, either way."),
  templates: none("GET", "/templates", "`perdure image list` has images."),
  templatesV2: none("GET", "/v2/templates", "`perdure image list` has images."),
  buildV3: none("POST", "/v3/templates", NO_BUILDS),
  build: none("POST", "/v2/templates", NO_BUILDS),
  tag: none("POST", "/templates/tags", "An image has one name."),
  untag: none("DELETE", "/templates/tags", "An image has one name."),
  tags: none("GET", "/templates/:templateID/tags", "An image has one name."),
  template: none("GET", "/templates/:templateID", "`perdure image list` has images."),
  templateFiles: none("GET", "/templates/:templateID/files/:hash", NO_BUILDS),
  changeTemplate: none("PATCH", "/templates/:templateID", "Images do not change."),
  changeTemplateV2: none("PATCH", "/v2/templates/:templateID", "Images do not change."),
  startBuild: none("POST", "/v2/templates/:templateID/builds/:buildID", NO_BUILDS),
  buildStatus: none("GET", "/templates/:templateID/builds/:buildID/status", NO_BUILDS),
  buildLogs: none("GET", "/templates/:templateID/builds/:buildID/logs", NO_BUILDS),
  teams: none("GET", "/teams", "`perdure key list` has keys."),
  teamMetrics: none("GET", "/teams/:teamID/metrics", NO_TEAMS),
  teamMetricsMax: none("GET", "/teams/:teamID/metrics/max", NO_TEAMS),
  volumes: none("GET", "/volumes", NO_VOLUMES),
  makeVolume: none("POST", "/volumes", NO_VOLUMES),
  volume: none("GET", "/volumes/:volumeID", NO_VOLUMES),
  removeVolume: none("DELETE", "/volumes/:volumeID", NO_VOLUMES),
  secrets: none("GET", "/secrets", NO_SECRETS),
  makeSecret: none("POST", "/secrets", NO_SECRETS),
  secret: none("GET", "/secrets/:secretID", NO_SECRETS),
  changeSecret: none("POST", "/secrets/:secretID", NO_SECRETS),
  removeSecret: none("DELETE", "/secrets/:secretID", NO_SECRETS),
} as const satisfies Record<string, E2bRoute>;

export type E2bOperation = keyof typeof e2bRoutes;

function route(
  method: E2bRoute["method"],
  path: string,
  scope: NonNullable<E2bRoute["scope"]>,
  summary: string,
): E2bRoute {
  return { method, path, summary, scope };
}

function none(method: E2bRoute["method"], path: string, summary: string): E2bRoute {
  return { method, path, summary, scope: null };
}

/** Of every route, what stands before the first of its `:names`. */
const beginnings = [
  ...new Set(Object.values<E2bRoute>(e2bRoutes).map(({ path }) => path.split("/:", 1)[0] ?? "")),
];

/** Whether a path can only be one of E2B's API. */
export function isE2bPath(path: string): boolean {
  return beginnings.some((begin) => path === begin || path.startsWith(`${begin}/`));
}

/** Of the SDK: methods whose call is answered with 501, or that find nothing. */
export const unsupportedMethods = [
  "Sandbox#getMcpToken",
  ...["Template.build", "Template.buildInBackground", "Template.getBuildStatus"],
  ...["Template.assignTags", "Template.removeTags", "Template.getTags"],
  ...["Volume.create", "Volume.connect", "Volume.getInfo", "Volume.list", "Volume.destroy"],
  ...["Secret.create", "Secret.update", "Secret.getInfo", "Secret.list", "Secret.exists"],
  ...["Secret.destroy", "SecretPaginator#nextItems"],
];

/** What a sandbox itself serves, on its port 49983. */
export const serviceRoutes = [
  ["GET /health", "204 while it runs."],
  ["GET /metrics", "What it uses now."],
  ["GET /envs", "The variables that its owner set."],
  ["GET /files", "One file. The path may be signed, with or without an end."],
  ["POST /files", "One file as it is, or several as form data; folders on the way are made."],
] as const;
