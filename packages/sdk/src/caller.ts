/** Calls by the route table: what every part of the client is built on. */
import { answerSchema, pathOf, takesKey } from "@perdure/protocol";
import type { ApiRoute, JsonAnswer } from "@perdure/protocol";
import type { Call, StreamedAnswer, Transport } from "./transport.ts";

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
    return this.transport.json(answerSchema(route), { ...to(route, params), ...call });
  }

  /** Of a route that answers nothing. */
  protected callForNothing(
    route: ApiRoute,
    params: Readonly<Record<string, string | number>>,
    call: Omit<Call, "method" | "path">,
  ): Promise<void> {
    return this.transport.empty({ ...to(route, params), ...call });
  }

  /** Of a route that answers a stream. */
  protected callForStream(
    route: ApiRoute,
    params: Readonly<Record<string, string | number>>,
    call: Omit<Call, "method" | "path">,
  ): Promise<StreamedAnswer> {
    return this.transport.stream({ ...to(route, params), ...call });
  }
}

function to(route: ApiRoute, params: Readonly<Record<string, string | number>>) {
  return { method: route.method, path: pathOf(route, params), once: takesKey(route) };
}
