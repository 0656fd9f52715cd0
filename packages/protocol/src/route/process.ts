/** Programs in an agent. */
import { z } from "zod";
import {
  agentRefSchema,
  execRequestSchema,
  execResponseSchema,
  outputEventSchema,
  outputQuerySchema,
  pageQuerySchema,
  processesResponseSchema,
  processRefSchema,
  signalRequestSchema,
  stdinQuerySchema,
} from "../api.ts";
import { attachQuerySchema } from "../attach.ts";
import { terminalSizeSchema } from "../terminal.ts";
import { bytes, json, lines } from "./route.ts";
import type { ApiRoute } from "./route.ts";

const agent = z.object({ agent: agentRefSchema });
const process = z.object({ agent: agentRefSchema, process: processRefSchema });

export const processRoutes = {
  exec: {
    method: "POST",
    path: "/v1/agents/:agent/exec",
    summary: "Start a program and answer as soon as it runs; wakes the agent first.",
    params: agent,
    body: json(execRequestSchema),
    status: 201,
    answers: [json(execResponseSchema)],
    mutates: true,
    scope: "use",
  },
  processes: {
    method: "GET",
    path: "/v1/agents/:agent/processes",
    summary:
      "List the programs that exec started, in order of start, page by page; wakes the agent first.",
    params: agent,
    query: pageQuerySchema,
    status: 200,
    answers: [json(processesResponseSchema)],
    mutates: false,
    scope: "use",
  },
  output: {
    method: "GET",
    path: "/v1/agents/:agent/processes/:process/output",
    summary: "A program's output from a byte on, as it comes, until it exits or the agent sleeps.",
    params: process,
    query: outputQuerySchema,
    status: 200,
    answers: [lines(outputEventSchema)],
    mutates: false,
    scope: "use",
  },
  stdin: {
    method: "POST",
    path: "/v1/agents/:agent/processes/:process/stdin",
    summary: "Write to a program's standard input; answers when the guest has taken it.",
    params: process,
    query: stdinQuerySchema,
    body: bytes,
    status: 204,
    answers: [],
    mutates: true,
    scope: "use",
  },
  signal: {
    method: "POST",
    path: "/v1/agents/:agent/processes/:process/signal",
    summary: "Send a signal to a program and what it started.",
    params: process,
    body: json(signalRequestSchema),
    status: 204,
    answers: [],
    mutates: true,
    scope: "use",
  },
  resize: {
    method: "POST",
    path: "/v1/agents/:agent/processes/:process/resize",
    summary: "Give the terminal that a program runs on another size.",
    params: process,
    body: json(terminalSizeSchema),
    status: 204,
    answers: [],
    mutates: true,
    repeat: "again",
    scope: "use",
  },
  attach: {
    method: "GET",
    path: "/v1/agents/:agent/processes/:process/attach",
    summary:
      "A program's output, input, signals and terminal size over one WebSocket: see attach.md.",
    params: process,
    query: attachQuerySchema,
    status: 101,
    answers: [],
    mutates: false,
    scope: "use",
  },
} as const satisfies Record<string, ApiRoute>;
