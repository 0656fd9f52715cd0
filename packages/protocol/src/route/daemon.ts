/** The daemon itself. */
import { z } from "zod";
import { aliveSchema, doctorReportSchema, healthSchema, metricsSchema } from "../api.ts";
import { json } from "./route.ts";
import type { ApiRoute } from "./route.ts";

export const daemonRoutes = {
  health: {
    method: "GET",
    path: "/v1/health",
    summary:
      "Who answers: version, process and data directory of the daemon; without a key only that it is alive.",
    status: 200,
    answers: [json(z.union([healthSchema, aliveSchema]))],
    mutates: false,
    scope: "none",
    narrowed: true,
  },
  metrics: {
    method: "GET",
    path: "/v1/metrics",
    summary: "What the daemon measured of itself since the last reading.",
    status: 200,
    answers: [json(metricsSchema)],
    mutates: false,
    scope: "admin",
  },
  doctor: {
    method: "GET",
    path: "/v1/doctor",
    summary: "What this host can and cannot do for VMs.",
    status: 200,
    answers: [json(doctorReportSchema)],
    mutates: false,
    scope: "admin",
  },
  shutdown: {
    method: "POST",
    path: "/v1/shutdown",
    summary: "End the daemon; VMs go on and the next one takes them over.",
    status: 202,
    answers: [json(z.object({}))],
    mutates: true,
    repeat: "again",
    scope: "admin",
  },
  openapi: {
    method: "GET",
    path: "/v1/openapi.json",
    summary: "This API as an OpenAPI 3.1 document.",
    status: 200,
    answers: [json(z.record(z.string(), z.unknown()))],
    mutates: false,
    scope: "read",
    narrowed: true,
  },
} as const satisfies Record<string, ApiRoute>;
