/** TCP ports in an agent: connections to them, and who may visit them. */
import type { FastifyInstance } from "fastify";
import { routes } from "@perdure/protocol";
import type { RouteContext } from "./context.ts";
import { servePort } from "./port-socket.ts";
import { serve } from "./serve.ts";

export function portRoutes(server: FastifyInstance, context: RouteContext): void {
  const { commands, closing, upgrades, pingMs, previewUrl } = context;
  serve(server, routes.connect, async ({ tenant, params, query, request, reply }) => {
    const socket = await upgrades.accept(request.raw);
    reply.hijack();
    const target = { tenant, ...params, ...query };
    await servePort(socket, { connect: () => commands.connect(target), closing, pingMs });
  });

  serve(server, routes.setPort, async ({ tenant, params, body }) => {
    const facts = await commands.execute({ kind: "set-port", tenant, ...params, ...body });
    return { ...facts, url: previewUrl(facts.agent, facts.port) };
  });
}
