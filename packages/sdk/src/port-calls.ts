/** TCP ports in an agent. Part of `Perdure`; examples run as they stand. */
import { pathOf, routes } from "@perdure/protocol";
import type { PortRequest, PortView } from "@perdure/protocol";
import { PortConnection } from "./port-connection.ts";
import { ProcessCalls } from "./process-calls.ts";
import type { CallOptions } from "./transport.ts";

export interface ConnectOptions extends CallOptions {
  /** false: `agent_state` where the agent is asleep, in place of waking it. */
  readonly wakes?: boolean;
}

export class PortCalls extends ProcessCalls {
  /**
   * Connects to a TCP port inside, where a program listens on 127.0.0.1 or ::1. Wakes the agent first where it is
   * asleep. A connection over which nothing passes keeps no agent awake, and ends when it sleeps.
   *
   * @param port 1 to 65535
   * @throws `port_refused` where no program listens, `deadline_exceeded`, `too_many`, `not_supported`
   * @example
   * try {
   *   await using connection = await perdure.connect("a1", 8000);
   *   await connection.write("GET / HTTP/1.0\r\n\r\n");
   *   for await (const bytes of connection) console.log(new TextDecoder().decode(bytes));
   * } catch (error) {
   *   if (!(error instanceof PerdureError) || error.code !== "port_refused") throw error;
   *   console.log("No program listens there");
   * }
   */
  connect(
    agent: string,
    port: number,
    { wakes, signal }: ConnectOptions = {},
  ): Promise<PortConnection> {
    const path = pathOf(routes.connect, { agent, port });
    return PortConnection.open(this.transport, { agent, port }, { path, query: { wakes }, signal });
  }

  /**
   * Says who may visit a port through its preview host: everybody, or whoever has its token or an API key with scope
   * `use`. What is left out stays as it is; ports are private to begin with.
   *
   * @param request.renewToken the token of before lets nobody in any more
   * @throws `agent_not_found`, `too_many`
   * @example
   * const { url, token } = await perdure.setPort("a1", 8000, { public: false });
   * console.log(`${url ?? ""}?perdure_token=${token}`);
   */
  setPort(
    agent: string,
    port: number,
    request: PortRequest = {},
    options: CallOptions = {},
  ): Promise<PortView> {
    return this.call(routes.setPort, { agent, port }, { json: request, ...options });
  }
}
