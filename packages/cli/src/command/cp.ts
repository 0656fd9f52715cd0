/** `cp`: one file into an agent or out of it. */
import { basename } from "node:path";
import type { Command } from "commander";
import { download, upload } from "../file-copy.ts";
import { parseMode, parsePlace } from "../place.ts";
import { formatSize } from "../quantity.ts";
import { addSharedOptions, withSession } from "../session.ts";
import type { SharedOptions } from "../session.ts";

interface CpOptions extends SharedOptions {
  readonly user?: string;
  readonly mode?: number;
}

export function addCpCommand(program: Command): void {
  const command = program
    .command("cp")
    .description("copy a file into an agent or out of it; - is stdin or stdout")
    .argument("<from>", "AGENT:/PATH, a path on this host, or -")
    .argument("<to>", "AGENT:/PATH, a path on this host, or -")
    .option("--user <name>", "whose rights count in the agent (default: as the image says)")
    .option("--mode <octal>", "permissions of the copy (default: those of the original)", parseMode)
    .addHelpText(
      "after",
      "\nExamples:\n  perdure cp notes.txt builder:/home/user/\n  perdure cp builder:/etc/hostname -",
    );
  addSharedOptions(command).action(async (fromText: string, toText: string, options: CpOptions) => {
    const from = parsePlace(fromText);
    const to = parsePlace(toText);
    if ((from.agent === undefined) === (to.agent === undefined)) {
      command.error("error: one of the two must be AGENT:/PATH and the other on this host");
    }
    const user = options.user === undefined ? {} : { user: options.user };
    await withSession(options, async ({ perdure, json, during }) => {
      const settings = { ...user, mode: options.mode };
      const copying =
        from.agent === undefined
          ? upload(perdure, from.path, to.agent ?? "", inFolder(to.path, from.path), settings)
          : download(perdure, from.agent, from.path, to.path, settings);
      const bytes = await during(`Copying to "${toText}"`, copying);
      if (json && to.path !== "-") process.stdout.write(`${JSON.stringify({ bytes })}\n`);
      else if (process.stderr.isTTY) process.stderr.write(`${formatSize(bytes)} copied\n`);
      return 0;
    });
  });
}

/** A path that ends in a slash names a folder. */
function inFolder(path: string, original: string): string {
  return path.endsWith("/") && original !== "-" ? `${path}${basename(original)}` : path;
}
