/**
 * Command line entry of the image builder, used by `npm run setup`:
 *
 *     build-image.ts --images DIR --guest FILE [--name NAME] [--kind debian|tiny] [--rebuild]
 *
 * Progress goes to standard error, the image as JSON to standard output. Exit 0, 1 failure, 2 usage.
 */
import { parseArgs } from "node:util";
import { PerdureError } from "@perdure/protocol";
import { buildImage } from "./image-builder.ts";
import { defaultImagesDirectory } from "./image-store.ts";
import { recipes } from "./recipe.ts";
import type { ImageKind } from "./recipe.ts";

const usage =
  "Usage: build-image.ts --guest FILE [--images DIR] [--name NAME] [--kind debian|tiny] [--rebuild]";

async function main(): Promise<number> {
  const flags = readFlags();
  if (flags === null) {
    console.error(usage);
    return 2;
  }
  const started = performance.now();
  try {
    const image = await buildImage({
      ...flags,
      report: (line) => {
        const seconds = ((performance.now() - started) / 1000).toFixed(1).padStart(5);
        console.error(`  ${seconds} s  ${line}`);
      },
    });
    console.log(JSON.stringify(image));
    return 0;
  } catch (error) {
    const known = PerdureError.from(error);
    console.error(known.message);
    if (known.hint !== undefined) console.error(known.hint);
    if (known.code === "internal") console.error(error);
    return 1;
  }
}

function readFlags() {
  try {
    const { values } = parseArgs({
      options: {
        images: { type: "string" },
        guest: { type: "string" },
        kind: { type: "string", default: "debian" },
        name: { type: "string" },
        rebuild: { type: "boolean", default: false },
      },
    });
    if (values.guest === undefined || !Object.hasOwn(recipes, values.kind)) return null;
    return {
      directory: values.images ?? defaultImagesDirectory(),
      name: values.name ?? values.kind,
      kind: values.kind as ImageKind,
      guestAgentPath: values.guest,
      rebuild: values.rebuild,
    };
  } catch {
    return null;
  }
}

process.exitCode = await main();
