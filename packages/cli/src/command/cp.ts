/** `cp`: a file or a folder into an agent or out of it. */
import { basename } from "node:path";
import { Option } from "commander";
import type { Command } from "commander";
import { download, isFolder as isLocalFolder, upload } from "../file-copy.ts";
import type { FolderCopy } from "../folder-archive.ts";
import { downloadFolder, uploadFolder } from "../folder-copy.ts";
import { given } from "../given.ts";
import { beginProgress } from "../progress.ts";
import { parseMode, parsePlace } from "../place.ts";
import type { Place } from "../place.ts";
import { formatSize } from "../quantity.ts";
import { quoted } from "../quoted.ts";
import { addSharedOptions, withSession } from "../session.ts";
import type { Session, SharedOptions } from "../session.ts";

interface CpOptions extends SharedOptions {
  readonly recursive?: boolean;
  readonly user?: string;
  readonly mode?: number;
}

export function addCpCommand(program: Command): void {
  const command = program
    .command("cp")
    .description("copy a file or a folder into an agent or out of it; - is stdin or stdout")
    .argument("<from>", "AGENT:/PATH, a path on this host, or -")
    .argument("<to>", "AGENT:/PATH, a path on this host, or -")
    .option("-r, --recursive", "a folder with all that is in it, to where nothing stands yet")
    .option("--user <name>", "whose rights count in the agent (default: as the image says)")
    .addOption(
      new Option("--mode <octal>", "permissions of the copy (default: those of the original)")
        .argParser(parseMode)
        .conflicts("recursive"),
    )
    .addHelpText("after", help);
  addSharedOptions(command).action(async (fromText: string, toText: string, options: CpOptions) => {
    const from = parsePlace(fromText);
    const to = parsePlace(toText);
    if ((from.agent === undefined) === (to.agent === undefined)) {
      command.error("error: one of the two must be AGENT:/PATH and the other on this host");
    }
    if (options.recursive === true && [from.path, to.path].includes("-")) {
      command.error("error: --recursive copies a folder, and - is a stream of bytes");
    }
    await withSession(options, async (session) =>
      options.recursive === true && (await isFolder(session, from, options))
        ? copyFolder(session, from, to, options)
        : copyFile(session, from, to, options),
    );
  });
}

const help = `
A file that stands at the end gives way; a folder never does. Both are whole there or not there.

Examples:
  perdure cp notes.txt builder:/home/user/
  perdure cp builder:/etc/hostname -
  perdure cp --recursive src builder:/home/user/
  perdure cp --recursive builder:/home/user/out results`;

async function copyFile(
  { perdure, json, during }: Session,
  from: Place,
  to: Place,
  { user, mode }: CpOptions,
): Promise<number> {
  const settings = given({ user, mode });
  const copying =
    from.agent === undefined
      ? upload(perdure, from.path, to.agent ?? "", inFolder(to.path, from.path), settings)
      : download(perdure, from.agent, from.path, to.path, settings);
  const bytes = await during(`Copying to "${to.path}"`, copying);
  if (json && to.path !== "-") process.stdout.write(`${JSON.stringify({ bytes })}\n`);
  else if (process.stderr.isTTY) process.stderr.write(`${formatSize(bytes)} copied\n`);
  return 0;
}

/** Of this host false, too, where nothing can be seen there: reading it says why. */
async function isFolder({ perdure }: Session, place: Place, { user }: CpOptions): Promise<boolean> {
  return place.agent === undefined
    ? isLocalFolder(place.path)
    : (await perdure.stat(place.agent, place.path, given({ user }))).kind === "directory";
}

/** A path that ends in a slash names a folder. */
function inFolder(path: string, original: string): string {
  return path.endsWith("/") && original !== "-" ? `${path}${basename(original)}` : path;
}

async function copyFolder(
  { perdure, json, print }: Session,
  from: Place,
  to: Place,
  { user }: CpOptions,
): Promise<number> {
  const progress = beginProgress(json, `Copying to "${to.path}"`);
  const stop = new AbortController();
  for (const name of ["SIGINT", "SIGTERM"] as const) process.once(name, () => stop.abort());
  const settings = {
    ...given({ user }),
    progress: (bytes: number) => progress.show(formatSize(bytes)),
    signal: stop.signal,
  };
  const copying =
    from.agent === undefined
      ? uploadFolder(perdure, from.path, { agent: to.agent ?? "", path: to.path }, settings)
      : downloadFolder(perdure, { agent: from.agent, path: from.path }, to.path, settings);
  const copied = await copying.finally(() => progress.end());
  print(copied, process.stderr.isTTY ? `${words(copied)}\n` : "");
  if (!json) for (const line of leftOutLines(copied)) process.stderr.write(line);
  return 0;
}

function words({ files, bytes }: FolderCopy): string {
  return `${files} ${files === 1 ? "file" : "files"}, ${formatSize(bytes)} copied`;
}

function* leftOutLines({ leftOut: { count, named } }: FolderCopy): Generator<string> {
  for (const { path, reason } of named) {
    yield `perdure: ${quoted(path)} was left out: ${reason}\n`;
  }
  if (count > named.length) yield `perdure: ${count - named.length} more were left out\n`;
}
