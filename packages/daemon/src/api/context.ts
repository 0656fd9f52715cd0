/** What every route needs, and the parts that all of them read in the same way. */
import { agentRefSchema, checkpointRefSchema, processRefSchema } from "@perdure/protocol";
import type { FastifyRequest } from "fastify";
import { z } from "zod";
import type { Commands, ProcessTarget, Target } from "../core/command.ts";
import { parse } from "./parse.ts";

/** Who owns what is reached through the daemon's own socket. */
export const LOCAL_TENANT = "default";

export interface RouteContext {
  readonly commands: Commands;
  /** Aborts when the server begins to close: streams end then. */
  readonly closing: AbortSignal;
}

const agentParams = z.object({ agent: agentRefSchema });
const processParams = z.object({ agent: agentRefSchema, process: processRefSchema });

const checkpointParams = z.object({ agent: agentRefSchema, checkpoint: checkpointRefSchema });

export function targetOf(request: FastifyRequest): Target {
  const { agent } = parse(agentParams, request.params, "path");
  return { tenant: LOCAL_TENANT, agent };
}

export function processTargetOf(request: FastifyRequest): ProcessTarget {
  const { agent, process } = parse(processParams, request.params, "path");
  return { tenant: LOCAL_TENANT, agent, process };
}

export function checkpointOf(request: FastifyRequest): Target & { readonly checkpoint: string } {
  const { agent, checkpoint } = parse(checkpointParams, request.params, "path");
  return { tenant: LOCAL_TENANT, agent, checkpoint };
}

/** The query, or the body where there may be none. */
export function queryOf<S extends z.ZodType>(request: FastifyRequest, schema: S): z.output<S> {
  return parse(schema, request.query, "query");
}

export function bodyOf<S extends z.ZodType>(request: FastifyRequest, schema: S): z.output<S> {
  return parse(schema, request.body ?? {}, "body");
}
