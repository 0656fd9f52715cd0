/** What is asked of an agent's stored files. */
import { Readable } from "node:stream";
import type { FastifyInstance } from "fastify";
import {
  PASSPHRASE_BYTES_MAX,
  PASSPHRASE_HEADER,
  PerdureError,
  routes,
  SIGNER_HEADER,
} from "@perdure/protocol";
import type { RouteContext } from "./context.ts";
import { onceGone, untilGone } from "./gone.ts";
import { jsonLines, sendLines } from "./json-lines.ts";
import { serve } from "./serve.ts";

const stopsVerifying = new PerdureError(
  "daemon_unreachable",
  "The daemon stops; the verification ends here",
  { hint: "Nothing was changed; run it again" },
);

export function storeRoutes(server: FastifyInstance, { commands, closing }: RouteContext): void {
  // A caller that goes away ends the reading: nothing was changed, so nothing is half done.
  serve(server, routes.verify, async ({ tenant, params, query, reply }) => {
    const wanted = { tenant, ...params, ...query };
    const lines = jsonLines({
      values: await commands.verify(wanted, untilGone(reply, closing)),
      encode: (event) => event,
      isLast: ({ type }) => type === "end",
      closing: { signal: closing, last: { type: "error", error: stopsVerifying } },
    });
    return sendLines(reply, lines);
  });

  serve(server, routes.export, async ({ tenant, params, query, headers, reply }) => {
    const passphrase = passphraseOf(headers);
    assertProtected(passphrase, query.inClear);
    const { all, withoutImage, checkpoint } = query;
    const file = await commands.export({
      tenant,
      ...params,
      ...(checkpoint === undefined ? {} : { checkpoint }),
      all,
      withImage: !withoutImage,
      passphrase,
    });
    // Also where the reader goes away before the first byte.
    onceGone(reply, () => void file.close());
    return reply
      .headers({ [SIGNER_HEADER]: file.signer, "cache-control": "no-store" })
      .type("application/octet-stream")
      .send(Readable.from(file.bytes, { objectMode: false }));
  });

  serve(server, routes.gc, ({ tenant, params }) =>
    commands.execute({ kind: "gc", tenant, ...params }),
  );

  server.register((scope, _options, done) => {
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser("*", (_request, body, parsed) => {
      parsed(null, body);
    });
    serve(scope, routes.import, async ({ tenant, query, headers, upload, request, reply }) => {
      const wanted = { tenant, name: query.name, passphrase: passphraseOf(headers) };
      try {
        return await commands.import(wanted, upload);
      } catch (error) {
        // Its length is not known: who goes on sending after the answer is not listened to for ever.
        reply.raw.once("finish", () => {
          setTimeout(() => request.raw.destroy(), drainMs).unref();
        });
        throw error;
      }
    });
    done();
  });
}

/** From the refusal of an upload until its connection is cut. */
const drainMs = 10_000;

function passphraseOf(headers: {
  readonly [PASSPHRASE_HEADER]?: string | undefined;
}): string | null {
  const sent = headers[PASSPHRASE_HEADER];
  if (sent === undefined) return null;
  const bytes = Buffer.from(sent, "base64");
  try {
    if (bytes.length <= PASSPHRASE_BYTES_MAX) {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    }
  } catch {
    // The same answer.
  }
  throw new PerdureError("bad_request", `Cannot read "headers.${PASSPHRASE_HEADER}"`, {
    hint: `Send 1 to ${PASSPHRASE_BYTES_MAX} bytes of UTF-8 as base64.`,
    details: { field: `headers.${PASSPHRASE_HEADER}` },
  });
}

/** A file holds everything that the agent knows: that anybody may read it must be asked for. */
function assertProtected(passphrase: string | null, inClear: boolean): void {
  if ((passphrase === null) === inClear) return;
  throw new PerdureError(
    "bad_request",
    passphrase === null
      ? "Cannot export: there is neither a passphrase nor the word that the file may be in the clear"
      : "Cannot export in the clear under a passphrase",
    {
      hint: "Give a passphrase (--passphrase-file), or ask for a file that whoever has it can read (--in-clear).",
      details: { field: "query.inClear" },
    },
  );
}
