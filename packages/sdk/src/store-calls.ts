/** What an agent has stored. */
import { PASSPHRASE_HEADER, pathOf, routes, SIGNER_HEADER } from "@perdure/protocol";
import type { Freed, ImportResponse } from "@perdure/protocol";
import { encodeBase64 } from "./bytes.ts";
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

  /**
   * The agent as one file, to keep elsewhere or to take to another host: of a sleeping or stopped one, or from
   * a checkpoint that is named. It holds all that the agent knows, so it is under a passphrase, or `inClear`
   * says that whoever has the file may read it.
   *
   * @param options.all every other checkpoint that has a name, too
   * @param options.withoutImage the importing host must have the agent's image
   * @throws `agent_state` where it is awake and no checkpoint is named, `checkpoint_not_found`, `bad_request`
   * @example
   * await perdure.sleep("a1");
   * const file = await perdure.export("a1", { passphrase: "correct horse battery staple" });
   * for await (const chunk of file.bytes) console.log(chunk.length);
   */
  async export(agent: string, options: ExportOptions): Promise<ExportedFile> {
    const { checkpoint, all, withoutImage, inClear, passphrase, ...call } = options;
    const { headers, bytes } = await this.transport.stream({
      method: routes.export.method,
      path: pathOf(routes.export, { agent }),
      query: { checkpoint, all, withoutImage, inClear },
      headers: passphraseHeaders(passphrase),
      ...call,
    });
    return { signer: String(headers[SIGNER_HEADER]), bytes };
  }

  /**
   * A new agent from a file that was exported. It is asleep or stopped: its first wake gives it an identity of
   * its own, as a fork has one.
   *
   * @throws `export_invalid`, `export_too_new`, `export_passphrase`, `agent_exists`, `disk_full`
   * @example
   * await perdure.sleep("a1");
   * const { bytes } = await perdure.export("a1", { inClear: true });
   * const { agent, from } = await perdure.import("a1-copy", bytes);
   * console.log(agent.state, from.signer);
   */
  import(
    name: string,
    file: AsyncIterable<Uint8Array> | Uint8Array | Blob,
    options: CallOptions & { readonly passphrase?: string } = {},
  ): Promise<ImportResponse> {
    const { passphrase, ...call } = options;
    return this.call(
      routes.import,
      {},
      { query: { name }, body: file, headers: passphraseHeaders(passphrase), ...call },
    );
  }

  /**
   * Frees what cuts would free later: disk layers that can become one do, and what no checkpoint that is kept
   * needs is removed. An agent that rests stays at rest; with a large disk this takes a while.
   *
   * @throws `agent_not_found`
   * @example
   * const { freedBytes, layers } = await perdure.gc("a1");
   * console.log(freedBytes, layers.before, layers.after);
   */
  gc(agent: string, options: CallOptions = {}): Promise<Freed> {
    return this.call(routes.gc, { agent }, options);
  }
}

export interface ExportOptions extends CallOptions {
  /** Id or name; default: the newest, which an awake agent does not have. */
  readonly checkpoint?: string;
  readonly all?: boolean;
  readonly withoutImage?: boolean;
  readonly passphrase?: string;
  readonly inClear?: boolean;
}

/** Consume `bytes` once; leaving the loop ends the transfer. Cut off where something is damaged. */
export interface ExportedFile {
  /** SHA-256 of the public key that signed it: what `import` shows on the other host. */
  readonly signer: string;
  readonly bytes: AsyncIterable<Uint8Array>;
}

function passphraseHeaders(passphrase: string | undefined): Record<string, string> {
  if (passphrase === undefined) return {};
  return { [PASSPHRASE_HEADER]: encodeBase64(new TextEncoder().encode(passphrase)) };
}
