/**
 * Generates the code of the Connect services' messages from packages/daemon/src/api/e2b/schema/*.proto.
 * `node tools/generate-schema.ts` writes the files; generate-schema.test.ts fails while they are not current.
 *
 * JavaScript with declarations: TypeScript would have enums, which Node does not strip.
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { format } from "prettier";

const root = join(import.meta.dirname, "..");
const schema = "packages/daemon/src/api/e2b/schema";

const template = JSON.stringify({
  version: "v2",
  plugins: [
    {
      local: [
        process.execPath,
        join(root, "node_modules/@bufbuild/protoc-gen-es/bin/protoc-gen-es"),
      ],
      out: ".",
      opt: ["target=js+dts", "js_import_style=module"],
    },
  ],
});

/** Path from the root of the repository → whole content. */
export async function generateSchema(): Promise<ReadonlyMap<string, string>> {
  const out = mkdtempSync(join(tmpdir(), "perdure-schema-"));
  try {
    const buf = join(root, "node_modules/@bufbuild/buf/bin/buf");
    const args = [buf, "generate", join(root, schema), "--template", template, "-o", out];
    execFileSync(process.execPath, args, { stdio: ["ignore", "inherit", "inherit"] });
    const files = readdirSync(out).map(async (name): Promise<[string, string]> => {
      const text = readFileSync(join(out, name), "utf8").replace("/* eslint-disable */\n", "");
      const parser = name.endsWith(".ts") ? "typescript" : "babel";
      return [join(schema, nameOf(name)), await format(text, { parser, printWidth: 100 })];
    });
    return new Map(await Promise.all(files));
  } finally {
    rmSync(out, { recursive: true, force: true });
  }
}

/** `process_pb.js` → `process.mjs`. */
function nameOf(name: string): string {
  return name.replace("_pb.d.ts", ".d.mts").replace("_pb.js", ".mjs");
}

if (import.meta.main) {
  for (const [path, text] of await generateSchema()) {
    writeFileSync(join(root, path), text);
    console.log(path);
  }
}
