/** The SDK as a browser gets it: what a bundler makes of a program that imports it. */
import { build } from "vite";

/** One script of `entry`, a path, and all that it imports, as for a page. */
export async function bundle(entry: string): Promise<string> {
  const result = await build({
    configFile: false,
    logLevel: "silent",
    build: {
      lib: { entry, formats: ["iife"], name: "program" },
      write: false,
      minify: true,
      emptyOutDir: false,
    },
    // What is not for browsers must be an error, not an empty module.
    plugins: [
      {
        name: "no-node-modules",
        enforce: "pre",
        resolveId(id, importer) {
          if (!id.startsWith("node:")) return null;
          throw new Error(`${id} is imported by ${importer ?? "the program"}`);
        },
      },
    ],
  });
  const output = Array.isArray(result) ? result[0] : result;
  if (output === undefined || !("output" in output)) throw new Error("Nothing was built");
  const [chunk] = output.output;
  return chunk.code;
}
