/** `/v1/agents` and the verbs of one agent. */
import type { FastifyInstance } from "fastify";
import {
  checkpointRequestSchema,
  createRequestSchema,
  emptyRequestSchema,
  forkRequestSchema,
  listQuerySchema,
  recoverRequestSchema,
  restoreRequestSchema,
} from "@perdure/protocol";
import type { RouteContext } from "./context.ts";
import { bodyOf, checkpointOf, LOCAL_TENANT, queryOf, targetOf } from "./context.ts";

export function agentRoutes(server: FastifyInstance, { commands }: RouteContext): void {
  server.get("/v1/agents", (request) =>
    commands.list({ tenant: LOCAL_TENANT, ...queryOf(request, listQuerySchema) }),
  );

  server.post("/v1/agents", async (request, reply) => {
    const body = bodyOf(request, createRequestSchema);
    const { name, image, onCrash, memoryBytes, cpus, diskBytes } = body;
    const shape = { memoryBytes, cpus, diskBytes };
    void reply.code(201);
    return commands.execute({ kind: "create", tenant: LOCAL_TENANT, name, image, shape, onCrash });
  });

  server.get("/v1/agents/:agent", (request) => commands.show(targetOf(request)));

  server.delete("/v1/agents/:agent", (request) => {
    bodyOf(request, emptyRequestSchema);
    return commands.execute({ kind: "remove", ...targetOf(request) });
  });

  for (const kind of ["sleep", "wake", "stop", "start"] as const) {
    server.post(`/v1/agents/:agent/${kind}`, (request) => {
      bodyOf(request, emptyRequestSchema);
      return commands.execute({ kind, ...targetOf(request) });
    });
  }

  server.post("/v1/agents/:agent/recover", (request) =>
    commands.execute({
      kind: "recover",
      ...targetOf(request),
      ...bodyOf(request, recoverRequestSchema),
    }),
  );

  server.post("/v1/agents/:agent/restore", (request) =>
    commands.execute({
      kind: "restore",
      ...targetOf(request),
      ...bodyOf(request, restoreRequestSchema),
    }),
  );

  server.post("/v1/agents/:agent/fork", async (request, reply) => {
    const command = {
      kind: "fork",
      ...targetOf(request),
      ...bodyOf(request, forkRequestSchema),
    } as const;
    void reply.code(201);
    return commands.execute(command);
  });

  server.delete("/v1/agents/:agent/checkpoints/:checkpoint", (request) => {
    bodyOf(request, emptyRequestSchema);
    return commands.execute({ kind: "drop", ...checkpointOf(request) });
  });

  server.post("/v1/agents/:agent/checkpoint", (request) =>
    commands.execute({
      kind: "checkpoint",
      ...targetOf(request),
      ...bodyOf(request, checkpointRequestSchema),
    }),
  );

  server.get("/v1/agents/:agent/checkpoints", async (request) => ({
    checkpoints: await commands.checkpoints(targetOf(request)),
  }));

  server.get("/v1/agents/:agent/report", async (request) => ({
    report: await commands.report(targetOf(request)),
  }));
}
