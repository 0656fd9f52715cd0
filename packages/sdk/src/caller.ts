/** Calls by the route table: what every part of the client is built on. */
import { answerSchema, pathOf, takesKey } from "@perdure/protocol";
import type { ApiRoute, JsonAnswer } from "@perdure/protocol";
import type { Call, Transport } from "./transport.ts";

export class Caller {
  protected readonly transport: Transport;

  constructor(transport: Transport) {
    this.transport = transport;
  }

  protected call<R extends ApiRoute>(
    route: R,
    params: Readonly<Record<string, string | number>>,
    call: Omit<Call, "method" | "path">,
  ): Promise<JsonAnswer<R>> {
    const to = { method: route.method, path: pathOf(route, params), once: takesKey(route) };
    return this.transport.json(answerSchema(route), { ...to, ...call });
  }
}
