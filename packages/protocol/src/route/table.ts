/** The route table: every `/v1` route by its operation. route.ts says how to add one. */
import { agentRoutes } from "./agent.ts";
import { daemonRoutes } from "./daemon.ts";
import { egressRoutes } from "./egress.ts";
import { eventRoutes } from "./event.ts";
import { fileRoutes } from "./file.ts";
import { imageRoutes } from "./image.ts";
import { keyRoutes } from "./key.ts";
import { portRoutes } from "./port.ts";
import { processRoutes } from "./process.ts";
import { restRoutes } from "./rest.ts";
import type { ApiRoute } from "./route.ts";
import { storeRoutes } from "./store.ts";

/** Area → its routes, in the order of the documents. */
export const routeAreas = {
  Agents: agentRoutes,
  Rest: restRoutes,
  Programs: processRoutes,
  Files: fileRoutes,
  Ports: portRoutes,
  Egress: egressRoutes,
  Storage: storeRoutes,
  Events: eventRoutes,
  Images: imageRoutes,
  Keys: keyRoutes,
  Daemon: daemonRoutes,
} as const satisfies Record<string, Record<string, ApiRoute>>;

export const routes = {
  ...agentRoutes,
  ...restRoutes,
  ...processRoutes,
  ...fileRoutes,
  ...portRoutes,
  ...egressRoutes,
  ...storeRoutes,
  ...eventRoutes,
  ...imageRoutes,
  ...keyRoutes,
  ...daemonRoutes,
} as const satisfies Record<string, ApiRoute>;

/** What an entry of the table is called. */
export type Operation = keyof typeof routes;
