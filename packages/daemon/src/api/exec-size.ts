/**
 * What an exec takes on the link into the VM: known here, so that no agent is woken for a request that
 * will not fit. The link refuses it in any case; a test holds the two together.
 */
import { apiLimits, PerdureError } from "@perdure/protocol";
import type { execRequestSchema } from "@perdure/protocol";
import type { z } from "zod";

/** The number of the operation. */
const OPERATION_BYTES = 2;
/** Before every field. */
const HEADER_BYTES = 6;
const NUMBER_BYTES = HEADER_BYTES + 8;

/** @throws `too_large` */
export function checkExecSize(agent: string, request: z.output<typeof execRequestSchema>): void {
  const { argv = [], env, cwd, user = "", timeoutMs, logBytes, terminal } = request;
  const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`);
  const texts = [...argv, ...variables, user, ...(cwd === undefined ? [] : [cwd])];
  const optional = [timeoutMs, logBytes, terminal?.rows, terminal?.columns];
  // `stdin` is the number that is always there.
  const numbers = 1 + optional.filter((number) => number !== undefined).length;
  const bytes = texts.reduce(
    (sum, text) => sum + HEADER_BYTES + Buffer.byteLength(text),
    OPERATION_BYTES + numbers * NUMBER_BYTES,
  );
  const bytesMax = apiLimits.execBytesMax;
  if (bytes <= bytesMax) return;
  throw new PerdureError(
    "too_large",
    `Cannot run a program in agent "${agent}": its arguments, variables, folder and user take ${bytes} bytes, at most ${bytesMax} fit`,
    {
      hint: "Write what is long into a file inside, or feed it to stdin.",
      details: { requestBytes: bytes, requestBytesMax: bytesMax },
    },
  );
}
