/** API keys of callers over TCP: `perdure.keys`. Examples run as they stand, with `perdure` open. */
import { routes } from "@perdure/protocol";
import type { CreatedKey, CreateKeyRequest, KeysResponse, KeyView } from "@perdure/protocol";
import { Caller } from "./caller.ts";
import { eachOfPages } from "./page.ts";
import type { CallOptions } from "./transport.ts";

export class KeyCalls extends Caller {
  /**
   * Makes an API key for callers over TCP. Its token is in this answer and nowhere else.
   *
   * @param request.scope `read`: to look; `use`: exec, files, sleep and wake, too; `admin`: everything
   * @param request.agents names or ids of the only agents it reaches; default: all
   * @param request.expiresAtMs milliseconds since the epoch; default: never
   * @throws `key_exists`, `too_many` beyond 1000, `bad_request`
   * @example
   * const { key, token } = await perdure.keys.create({ name: "console", scope: "read" });
   * await perdure.keys.revoke(key.id);
   */
  create(request: CreateKeyRequest, options: CallOptions = {}): Promise<CreatedKey> {
    return this.call(routes.createKey, {}, { json: request, ...options });
  }

  /**
   * Every API key by name, fetched page by page as the loop goes on.
   *
   * @example
   * for await (const { name, scope, lastUsedAtMs } of perdure.keys.list()) console.log(name, scope, lastUsedAtMs);
   */
  async *list(options: CallOptions = {}): AsyncGenerator<KeyView> {
    yield* eachOfPages(async (after) => {
      const { keys, next } = await this.page({ ...options, ...after });
      return { items: keys, next };
    });
  }

  /**
   * One page of `list`. Pass its `next` as `after` for the next one; null on the last.
   *
   * @param options.limit 1 to 1000, default 100
   * @example
   * const { keys, next } = await perdure.keys.page({ limit: 20 });
   */
  page(
    options: CallOptions & { readonly after?: string; readonly limit?: number } = {},
  ): Promise<KeysResponse> {
    const { after, limit, signal } = options;
    return this.call(routes.keys, {}, { query: { after, limit }, signal });
  }

  /**
   * Ends an API key, by name or id, at once: connections that were opened with it are cut.
   *
   * @throws `key_not_found`
   * @example
   * await perdure.keys.create({ name: "build", scope: "use", agents: ["a1"] });
   * await perdure.keys.revoke("build");
   */
  revoke(key: string, options: CallOptions = {}): Promise<KeyView> {
    return this.call(routes.revokeKey, { key }, options);
  }
}
