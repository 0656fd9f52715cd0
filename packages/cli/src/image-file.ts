/** Files on this host that images are made from. */
import { open, readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { PerdureError } from "@perdure/sdk";
import type { RecipeInput } from "@perdure/sdk";
import { localError } from "@perdure/sdk/local-error";
import { counted, readHere } from "./passing-bytes.ts";

const pieceBytes = 1024 * 1024;

export interface OpenArchive extends AsyncDisposable {
  readonly bytes: AsyncIterable<Uint8Array>;
}

/** @param path `-` is stdin. @param sent told how much was read so far */
export async function openArchive(
  path: string,
  sent: (bytes: number) => void,
): Promise<OpenArchive> {
  if (path === "-") {
    return {
      bytes: counted(readHere("stdin", process.stdin), sent),
      [Symbol.asyncDispose]: () => Promise.resolve(),
    };
  }
  const file = await open(path, "r").catch((error: unknown) => {
    throw localError(`read "${path}" on this host`, error);
  });
  // A pipe is fine, as in <(docker save app:1).
  if ((await file.stat()).isDirectory()) {
    await file.close();
    throw new PerdureError("path_is_directory", `Cannot read "${path}": it is a folder`, {
      hint: `An OCI layout is packed like this: tar c -C "${path}" . | perdure image import - --name NAME`,
    });
  }
  const stream = file.createReadStream({ autoClose: false, highWaterMark: pieceBytes });
  return {
    bytes: counted(readHere(`"${path}"`, stream), sent),
    [Symbol.asyncDispose]: () => file.close(),
  };
}

/** @param path `-` is stdin. What is in it is checked by the daemon. */
export async function readRecipe(path: string): Promise<RecipeInput> {
  const words =
    path === "-"
      ? await text(process.stdin)
      : await readFile(path, "utf8").catch((error: unknown) => {
          throw localError(`read "${path}" on this host`, error);
        });
  try {
    return JSON.parse(words) as RecipeInput;
  } catch (error) {
    const { message } = error as Error;
    throw new PerdureError(
      "bad_request",
      `Cannot use recipe "${path}": it is not JSON: ${message}`,
      {
        hint: 'Write an object, as in {"packages": ["nodejs"]}.',
        cause: error,
      },
    );
  }
}
