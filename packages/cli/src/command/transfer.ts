/** `export` and `import`: an agent as one file. */
import { createReadStream } from "node:fs";
import { open, readFile } from "node:fs/promises";
import { pipeline } from "node:stream/promises";
import type { Command } from "commander";
import { PerdureError } from "@perdure/sdk";
import type { ImportResponse } from "@perdure/sdk";
import { localError } from "@perdure/sdk/local-error";
import { save } from "../file-copy.ts";
import { beginProgress } from "../progress.ts";
import type { Progress } from "../progress.ts";
import { counted, readHere } from "../passing-bytes.ts";
import { formatSize } from "../quantity.ts";
import { addSharedOptions, withSession } from "../session.ts";
import type { SharedOptions } from "../session.ts";

interface ExportFlags extends SharedOptions {
  readonly output?: string;
  readonly checkpoint?: string;
  readonly all?: boolean;
  readonly withoutImage?: boolean;
  readonly passphraseFile?: string;
  readonly inClear?: boolean;
}

export function addTransferCommands(program: Command): void {
  addExportCommand(program);
  addImportCommand(program);
}

function addExportCommand(program: Command): void {
  const command = program
    .command("export")
    .description(
      "write a sleeping or stopped agent to one file, to keep or to take to another host",
    )
    .argument("<agent>", "name or id")
    .option("-o, --output <file>", "where to; - is stdout (default: AGENT.perdure)")
    .option(
      "--checkpoint <checkpoint>",
      "name or id; needed of an awake agent; default: the newest",
    )
    .option("--all", "every other checkpoint that has a name, too")
    .option("--without-image", "leave the image out: the importing host must have it")
    .option("--passphrase-file <file>", "the passphrase that the file is encrypted under")
    .option("--in-clear", "no passphrase: whoever has the file reads all that the agent knows")
    .addHelpText(
      "after",
      "\nThe file holds the agent's memory, disk and key. Take a passphrase, or say --in-clear." +
        "\n\nExamples:\n  perdure export builder --passphrase-file secret" +
        "\n  perdure export builder --in-clear -o - | ssh other perdure import - --name builder",
    );
  addSharedOptions(command).action(async (agent: string, options: ExportFlags) => {
    const { output = `${agent}.perdure`, checkpoint, all, withoutImage, inClear } = options;
    if ((options.passphraseFile === undefined) === (inClear !== true)) {
      command.error("error: give one of --passphrase-file and --in-clear");
    }
    if (output === "-" && process.stdout.isTTY) {
      command.error("error: the file is not text: redirect the output, or name a file with -o");
    }
    const passphrase = await passphraseOf(options);
    await withSession(options, async ({ perdure, json, print }) => {
      const wanted = {
        ...(checkpoint === undefined ? {} : { checkpoint }),
        ...(all === true ? { all } : {}),
        ...(withoutImage === true ? { withoutImage } : {}),
        ...(inClear === true ? { inClear } : {}),
        ...passphrase,
      };
      const progress = beginProgress(json, `Exporting agent "${agent}"`);
      const { bytes, signer } = await perdure
        .export(agent, wanted)
        .then(async (file) => ({ ...file, bytes: await toFile(file.bytes, output, progress) }))
        .finally(() => progress.end());
      const facts = { output, bytes, signer };
      const text = `Agent "${agent}" is in "${output}": ${formatSize(bytes)}, signed by ${signer}\n`;
      if (output === "-") process.stderr.write(json ? "" : text);
      else print(facts, text);
      return 0;
    });
  });
}

function addImportCommand(program: Command): void {
  const command = program
    .command("import")
    .description("make a new agent from a file that was exported; its first wake is its own")
    .argument("<file>", "- is stdin")
    .requiredOption("--name <name>", "of the new agent")
    .option("--passphrase-file <file>", "the passphrase that it was exported with")
    .addHelpText(
      "after",
      "\nWho signed the file is shown: compare it with what export showed on the other host." +
        "\n\nExample:\n  perdure import builder.perdure --name builder --passphrase-file secret",
    );
  type Options = SharedOptions & { readonly name: string; readonly passphraseFile?: string };
  addSharedOptions(command).action(async (path: string, options: Options) => {
    const passphrase = await passphraseOf(options);
    await withSession(options, async ({ perdure, json, print }) => {
      const progress = beginProgress(json, `Importing agent "${options.name}"`);
      try {
        const bytes = counted(fromFile(path), (count) => progress.show(formatSize(count)));
        const answer = await perdure.import(options.name, bytes, passphrase);
        progress.end();
        print(answer, describe(answer));
      } finally {
        progress.end();
      }
      return 0;
    });
  });
}

function describe({ agent, checkpoints, from }: ImportResponse): string {
  const count = checkpoints.length === 1 ? "1 checkpoint" : `${checkpoints.length} checkpoints`;
  const verb = agent.state === "stopped" ? "start" : "wake";
  return (
    `Agent "${agent.name}" is ${agent.state}: ${count} of agent "${from.name}", ` +
    `exported ${new Date(from.exportedAtMs).toISOString()}, signed by ${from.signer}\n` +
    `"perdure ${verb} ${agent.name}" lets it out, as a computer of its own\n`
  );
}

/** Bytes written. A file appears whole, and only once it is on the disk. */
async function toFile(
  chunks: AsyncIterable<Uint8Array>,
  path: string,
  progress: Progress,
): Promise<number> {
  let count = 0;
  const passing = (): AsyncIterable<Uint8Array> =>
    counted(chunks, (bytes) => progress.show(formatSize((count = bytes))));
  try {
    if (path === "-") await pipeline(passing, process.stdout, { end: false });
    else await save(passing, path, 0o600);
  } catch (error) {
    throw brokenOff(localError(`write "${path}" on this host`, error));
  }
  return count;
}

/** The daemon breaks the file off where it meets damage; its words cannot come along. */
function brokenOff(error: PerdureError): PerdureError {
  if (error.code !== "interrupted") return error;
  return new PerdureError("interrupted", "The export broke off before its end; no file was left", {
    hint: 'Where this happens again, "perdure verify" says what is damaged.',
    cause: error,
  });
}

function fromFile(path: string): AsyncIterable<Uint8Array> {
  return path === "-" ? process.stdin : readLocal(path);
}

async function* readLocal(path: string): AsyncGenerator<Uint8Array> {
  const bytes = async function* (): AsyncGenerator {
    const file = await open(path, "r");
    yield* createReadStream(path, { fd: file, highWaterMark: 1024 * 1024 });
  };
  yield* readHere(`"${path}"`, bytes());
}

/** The file's content without the line's end. */
async function passphraseOf({
  passphraseFile,
}: {
  readonly passphraseFile?: string;
}): Promise<{ passphrase?: string }> {
  if (passphraseFile === undefined) return {};
  const text = await readFile(passphraseFile, "utf8").catch((error: unknown) => {
    throw localError(`read "${passphraseFile}" on this host`, error);
  });
  const passphrase = text.replace(/\r?\n$/, "");
  if (passphrase !== "") return { passphrase };
  throw new PerdureError("bad_request", `There is no passphrase in "${passphraseFile}"`);
}
