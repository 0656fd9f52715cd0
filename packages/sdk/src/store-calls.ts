/** What an agent has stored. */
import { pathOf, routes } from "@perdure/protocol";
import { RestCalls } from "./rest-calls.ts";
import type { CallOptions } from "./transport.ts";
import { readVerification } from "./verify-events.ts";
import type { Verification } from "./verify-events.ts";

export class StoreCalls extends RestCalls {
  /**
   * Reads everything that the agent's kept checkpoints name, or that one does, and says of each whether it
   * is what was written. Changes nothing, and the agent goes on meanwhile.
   *
   * @throws `checkpoint_not_found`
   * @example
   * for await (const event of perdure.verify("a1")) {
   *   if (event.type === "checkpoint") console.log(event.checkpoint, event.verdict);
   * }
   */
  async *verify(
    agent: string,
    options: CallOptions & { readonly checkpoint?: string } = {},
  ): AsyncGenerator<Verification> {
    const { checkpoint, ...call } = options;
    const { method } = routes.verify;
    const path = pathOf(routes.verify, { agent });
    const answer = await this.transport.stream({ method, path, query: { checkpoint }, ...call });
    yield* readVerification(answer.bytes);
  }
}
