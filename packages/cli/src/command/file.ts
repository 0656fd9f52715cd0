/**
 * `file`: what stands in an agent, by path. Its verbs are below a name of their own: at the top `list` and `remove`
 * are about agents, and nobody should remove one who meant a file. Bytes are for `cp`.
 */
import type { Command } from "commander";
import type { FileEvent, FolderEntry, PathFacts, Perdure } from "@perdure/sdk";
import { given } from "../given.ts";
import { parseAgentPlace, parseMode } from "../place.ts";
import type { AgentPlace } from "../place.ts";
import { quoted } from "../quoted.ts";
import { addSharedOptions, withSession } from "../session.ts";
import type { SharedOptions } from "../session.ts";
import { pairs, table } from "../table.ts";

interface FileOptions extends SharedOptions {
  readonly user?: string;
}

export function addFileCommands(program: Command): void {
  const file = program
    .command("file")
    .description("list, make, move, remove and watch what stands in an agent")
    .addHelpText(
      "after",
      "\nExamples:\n  perdure file list builder:/home/user\n  perdure file remove builder:/home/user/old --recursive\n" +
        "  perdure cp notes.txt builder:/home/user/",
    );
  addList(file);
  addStat(file);
  addMkdir(file);
  addMove(file);
  addRemove(file);
  addWatch(file);
}

function addFileOptions(command: Command): Command {
  command.option("--user <name>", "whose rights count in the agent (default: as the image says)");
  return addSharedOptions(command);
}

const placeWords = "AGENT:/PATH";

function addList(file: Command): void {
  const command = file
    .command("list")
    .alias("ls")
    .description("list a folder, by name")
    .argument("<folder>", placeWords, parseAgentPlace)
    .addHelpText("after", "\nExample:\n  perdure file list builder:/home/user --json");
  addFileOptions(command).action(
    async ({ agent, path }: AgentPlace, { user, ...options }: FileOptions) => {
      await withSession(options, async ({ perdure, during, print }) => {
        const listing = Array.fromAsync(perdure.listFolder(agent, path, given({ user })));
        const entries = await during(`Listing "${path}"`, listing);
        entries.sort((a, b) => (a.name < b.name ? -1 : 1));
        const shown = entries.map((entry) => ({ ...entry, mode: octal(entry.mode) }));
        print(shown, entries.length === 0 ? "" : table([heading, ...entries.map(row)]));
        return 0;
      });
    },
  );
}

const heading = ["MODE", "UID", "GID", "SIZE", "CHANGED", "NAME"];

const letters = { file: "-", directory: "d", link: "l", other: "?" } as const;

function row({ kind, mode, uid, gid, size, mtimeMs, name, linkTarget }: FolderEntry): string[] {
  const target = linkTarget === null ? "" : ` -> ${quoted(linkTarget)}`;
  const bits = `${letters[kind]}${octal(mode)}`;
  return [bits, String(uid), String(gid), String(size), moment(mtimeMs), quoted(name) + target];
}

function addStat(file: Command): void {
  const command = file
    .command("stat")
    .description("say what stands at a path; a link is described, not followed")
    .argument("<path>", placeWords, parseAgentPlace)
    .addHelpText("after", "\nExample:\n  perdure file stat builder:/etc/hostname");
  addFileOptions(command).action(
    async ({ agent, path }: AgentPlace, { user, ...options }: FileOptions) => {
      await withSession(options, async ({ perdure, during, print }) => {
        const facts = await during(
          `Looking at "${path}"`,
          perdure.stat(agent, path, given({ user })),
        );
        print({ ...facts, mode: octal(facts.mode) }, pairs(factLines(facts)));
        return 0;
      });
    },
  );
}

function factLines({ kind, size, mode, uid, gid, mtimeMs }: PathFacts): [string, string][] {
  return [
    ["kind", kind],
    ["size", String(size)],
    ["mode", octal(mode)],
    ["uid", String(uid)],
    ["gid", String(gid)],
    ["changed", moment(mtimeMs)],
  ];
}

/** A verb that has no more to say than that it was done: to programs, where. */
async function change(
  options: FileOptions,
  title: string,
  told: object,
  work: (perdure: Perdure) => Promise<void>,
): Promise<void> {
  await withSession(options, async ({ perdure, during, print }) => {
    await during(title, work(perdure));
    print(told, "");
    return 0;
  });
}

interface MkdirOptions extends FileOptions {
  readonly parents?: boolean;
  readonly mode?: number;
}

function addMkdir(file: Command): void {
  const command = file
    .command("mkdir")
    .description("make a folder")
    .argument("<folder>", placeWords, parseAgentPlace)
    .option("-p, --parents", "make those on the way to it, too; one that is there is fine")
    .option("--mode <octal>", "permissions (default: 755)", parseMode)
    .addHelpText("after", "\nExample:\n  perdure file mkdir -p builder:/home/user/work/deep");
  addFileOptions(command).action(async ({ agent, path }: AgentPlace, options: MkdirOptions) => {
    const { user, parents, mode } = options;
    const wish = given({ user, parents, mode });
    await change(options, `Making "${path}"`, { agent, path }, (perdure) =>
      perdure.makeFolder(agent, path, wish),
    );
  });
}

function addMove(file: Command): void {
  const command = file
    .command("move")
    .alias("mv")
    .description("move or rename a file, a link or a folder, in one step")
    .argument("<from>", placeWords, parseAgentPlace)
    .argument("<to>", `${placeWords}, in the same agent`, parseAgentPlace)
    .option("--replace", "what stands there gives way: a file, or an empty folder")
    .addHelpText(
      "after",
      "\nExample:\n  perdure file move builder:/home/user/draft builder:/home/user/final --replace",
    );
  addFileOptions(command).action(
    async (from: AgentPlace, to: AgentPlace, options: FileOptions & { replace?: boolean }) => {
      const { agent } = from;
      if (agent !== to.agent) {
        command.error(
          "error: both must be in one agent; `perdure cp` copies between agents and this host",
        );
      }
      const { user, replace } = options;
      const wish = given({ user, replace });
      const told = { agent, from: from.path, to: to.path };
      await change(options, `Moving "${from.path}"`, told, (perdure) =>
        perdure.movePath(agent, from.path, to.path, wish),
      );
    },
  );
}

function addRemove(file: Command): void {
  const command = file
    .command("remove")
    .alias("rm")
    .description("remove a file, a link or an empty folder; there is no way back")
    .argument("<path>", placeWords, parseAgentPlace)
    .option("-r, --recursive", "a folder with all that is in it")
    .addHelpText("after", "\nExample:\n  perdure file remove builder:/home/user/old --recursive");
  addFileOptions(command).action(
    async ({ agent, path }: AgentPlace, options: FileOptions & { recursive?: boolean }) => {
      const { user, recursive } = options;
      const wish = given({ user, recursive });
      await change(options, `Removing "${path}"`, { agent, path }, (perdure) =>
        perdure.removePath(agent, path, wish),
      );
    },
  );
}

function addWatch(file: Command): void {
  const command = file
    .command("watch")
    .description("print what changes at a path, until it is interrupted or the path is gone")
    .argument("<path>", placeWords, parseAgentPlace)
    .option("-r, --recursive", "whatever is below it, at any depth")
    .addHelpText(
      "after",
      "\nA sleep cuts it; it goes on once the agent is awake again. With --json each event is one line.\n\n" +
        "Example:\n  perdure file watch builder:/home/user/inbox --recursive",
    );
  addFileOptions(command).action(
    async ({ agent, path }: AgentPlace, options: FileOptions & { recursive?: boolean }) => {
      const { user, recursive } = options;
      const wish = given({ user, recursive });
      await withSession(options, async ({ perdure, json }) => {
        for await (const event of perdure.watch(agent, path, wish)) {
          process.stdout.write(`${json ? JSON.stringify(event) : inWords(event)}\n`);
        }
        return 0;
      });
    },
  );
}

function inWords(event: FileEvent): string {
  switch (event.type) {
    case "ready":
      return "(watching)";
    case "missed":
      return "(something may have changed that is not told: look at the whole)";
    case "interrupted":
      return `(interrupted: ${quoted(event.reason)})`;
    case "moved":
      return `moved  ${quoted(event.from)} -> ${quoted(event.path)}`;
    default:
      return `${event.type}  ${quoted(event.path)}`;
  }
}

function octal(mode: number): string {
  return mode.toString(8).padStart(3, "0");
}

/** A guest may set any time that a file system holds; not all are dates here. */
function moment(ms: number): string {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? `${ms} ms` : date.toISOString();
}
