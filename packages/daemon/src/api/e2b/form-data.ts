/** The files of a form, one after the other as they come. */
import type { IncomingMessage } from "node:http";
import type { Readable } from "node:stream";
import { Busboy } from "@fastify/busboy";
import { PerdureError } from "@perdure/protocol";

const PARTS_MAX = 1_000;
const FIELD_BYTES_MAX = 64 * 1024;
const HEADER_PAIRS_MAX = 100;

/**
 * Calls `take` for each file, with the path that it is called; the next one comes when that resolves.
 *
 * @throws `bad_request` where it is no form, `cancelled` where its sender goes away, what `take` throws
 */
export async function eachFile(
  request: IncomingMessage,
  take: (name: string, bytes: Readable) => Promise<void>,
): Promise<void> {
  const ended = Promise.withResolvers<undefined>();
  let taken = Promise.resolve();
  const form = parserOf(request);
  form.on("file", (_field: string, bytes: Readable, name: string | undefined) => {
    // Whoever takes it hears of its errors.
    bytes.on("error", () => undefined);
    taken = taken.then(() => take(name ?? "", bytes));
    taken.catch((error: unknown) => {
      ended.reject(error);
    });
  });
  for (const event of ["partsLimit", "filesLimit", "fieldsLimit"] as const) {
    form.on(event, () => {
      ended.reject(new PerdureError("too_large", `The form has more than ${PARTS_MAX} parts`));
    });
  }
  form.on("error", (error: unknown) => {
    const message = `Cannot read the form: ${String(error)}`;
    ended.reject(new PerdureError("bad_request", message, { cause: error }));
  });
  form.on("finish", () => {
    ended.resolve(undefined);
  });
  request.once("close", () => {
    if (request.readableEnded) return;
    ended.reject(
      new PerdureError("cancelled", "The uploader went away before the end of the form"),
    );
    form.destroy();
  });
  request.pipe(form);
  try {
    await ended.promise;
    await taken;
  } finally {
    request.unpipe(form);
    // Many clients look at the answer only after they have sent everything.
    request.resume();
  }
}

function parserOf({ headers }: IncomingMessage): InstanceType<typeof Busboy> {
  try {
    return new Busboy({
      headers: headers as IncomingMessage["headers"] & { "content-type": string },
      preservePath: true,
      limits: {
        parts: PARTS_MAX,
        fieldSize: FIELD_BYTES_MAX,
        headerPairs: HEADER_PAIRS_MAX,
      },
    });
  } catch (error) {
    throw new PerdureError("bad_request", `Cannot read the form: ${String(error)}`);
  }
}
