/** Small programs of the sandbox itself, for the few things that the link into it has no operation for. */
import { PerdureError } from "@perdure/protocol";
import type { Commands, Target } from "../../core/command.ts";

const TIMEOUT_MS = 10_000;
const OUTPUT_BYTES_MAX = 64 * 1024;

/** What it printed. @throws `exec_failed` where it is not there or ends with another code than 0 */
export async function runInside(
  commands: Pick<Commands, "execute" | "output">,
  target: Target,
  argv: readonly string[],
  user: string,
): Promise<string> {
  const { process } = await commands.execute({
    ...{ kind: "exec", ...target, argv, user, env: { LC_ALL: "C" }, stdin: false },
    ...{ timeoutMs: TIMEOUT_MS, logBytes: OUTPUT_BYTES_MAX },
  });
  const pieces = await commands.output(
    { ...target, process },
    0,
    AbortSignal.timeout(2 * TIMEOUT_MS),
  );
  const printed: Uint8Array[] = [];
  for await (const piece of pieces) {
    if (piece.type === "output" && piece.stream === "stdout") printed.push(piece.bytes);
    if (piece.type === "exit" && piece.exitCode === 0) return Buffer.concat(printed).toString();
    if (piece.type === "exit") break;
  }
  throw new PerdureError("exec_failed", `"${argv[0] ?? ""}" failed inside the sandbox`);
}
