/** The daemon itself: who answers, how it does, what its API is, and its end. */
import type { FastifyInstance } from "fastify";
import { openApiDocument, routes } from "@perdure/protocol";
import type { Health, Metrics } from "@perdure/protocol";
import type { Commands } from "../core/command.ts";
import { onceGone } from "./gone.ts";
import { anonymous } from "./principal.ts";
import { serve } from "./serve.ts";

export interface DaemonFacts {
  readonly commands: Commands;
  readonly health: () => Health;
  /** Read by whoever measures the daemon; a reading begins a new interval. */
  readonly metrics: () => Metrics;
  /** `POST /v1/shutdown`, called after the answer was written. VMs go on without the daemon. */
  readonly shutdown: () => void;
}

export function daemonRoutes(server: FastifyInstance, facts: DaemonFacts): void {
  serve(server, routes.health, ({ principal }) =>
    Promise.resolve(principal === anonymous ? { alive: true } : facts.health()),
  );
  serve(server, routes.metrics, () => Promise.resolve(facts.metrics()));
  serve(server, routes.doctor, () => facts.commands.doctor());

  let document: ReturnType<typeof openApiDocument> | undefined;
  serve(server, routes.openapi, () =>
    Promise.resolve((document ??= openApiDocument(facts.health().version))),
  );

  serve(server, routes.shutdown, ({ reply }) => {
    onceGone(reply, facts.shutdown);
    return Promise.resolve({});
  });
}
