/** Errors of the API in the words of the command line: options in place of fields, and what they allow. */
import type { Command } from "commander";
import { agentLimits, PerdureError, restLimits } from "@perdure/protocol";
import { formatDuration, formatSize } from "./quantity.ts";

/** `command` is the one that was parsed, where it came so far. */
export function inWords(error: unknown, command: Command | undefined): unknown {
  if (!(error instanceof PerdureError) || command === undefined) return error;
  const { field } = error.details;
  if (error.code === "bad_request" && typeof field === "string") {
    const [name, allowed] = wordOf(field, wholeName(command)) ?? [];
    if (name === undefined) return error;
    const reason = allowed ?? error.message.replace(/^Cannot read "[^"]*": /, "");
    const hint = `\`perdure ${wholeName(command)} --help\` shows how it is used.`;
    return changed(error, `Cannot take ${name}: ${reason}`, hint);
  }
  if (error.code === "path_not_empty" && wholeName(command) === "file remove") {
    return changed(error, error.message, "With --recursive it goes with all that is in it.");
  }
  const { part, check } = error.details;
  // Without one of its layers the disk is of no use either.
  const noDisk = part === "layer" && check === "presence";
  const way = damaged.has(error.code) && !noDisk ? wayOut(command) : undefined;
  if (way === undefined || error.hint?.includes("--from disk") === true) return error;
  return changed(error, error.message, [error.hint, way].filter(Boolean).join(" "));
}

/** With the names of the commands that it belongs to, but for the program's. */
function wholeName(command: Command): string {
  const { parent } = command;
  return parent?.parent == null ? command.name() : `${wholeName(parent)} ${command.name()}`;
}

type Word = readonly [name: string, allowed?: string];

const nameRule =
  "it must have 1 to 63 lower-case letters, digits and hyphens, no hyphen at either end";

const imageNameRule =
  "it must have 1 to 63 lower-case letters, digits, dots, dashes and underscores, a letter or digit first";

/** The first field that begins `field` counts: `body.env.HOME` is `body.env`. */
function wordOf(field: string, verb: string): Word | undefined {
  const key = Object.keys(words).find((known) => field === known || field.startsWith(`${known}.`));
  if (verb.startsWith("image ") && field.endsWith(".name")) return ["--name", imageNameRule];
  if (field === "body.name") return [verb === "create" ? "<name>" : "--name", nameRule];
  return key === undefined ? undefined : words[key];
}

const words: Readonly<Record<string, Word>> = {
  "path.image": ["<image>", "it must be an image's name or id"],
  "path.agent": ["<agent>", "it must be an agent's name or id"],
  "path.process": ["--attach"],
  "query.offset": ["--offset"],
  "query.name": ["--name", nameRule],
  "query.checkpoint": ["--checkpoint", "it must be a checkpoint's name or id"],
  "headers.perdure-passphrase": ["--passphrase-file", "it must hold 1 to 1024 bytes of UTF-8"],
  "query.prefix": ["--prefix", "it must have at most 63 characters"],
  "query.path": ["the path in the agent", "it must begin with / and have at most 4095 bytes"],
  "body.path": ["the path in the agent", "it must begin with / and have at most 4095 bytes"],
  "body.from": ["<from>", "its path must have at most 4095 bytes"],
  "body.to": ["<to>", "its path must have at most 4095 bytes"],
  "query.user": ["--user", "it must have 1 to 64 characters"],
  "body.user": ["--user", "it must have 1 to 64 characters"],
  "body.image": ["--image", "it must have 1 to 128 characters"],
  "body.memoryBytes": ["--memory", sizes("memory")],
  "body.cpus": ["--cpus", `it must be ${agentLimits.cpusMin} to ${agentLimits.cpusMax}`],
  "body.diskBytes": ["--disk", sizes("disk")],
  "body.cwd": ["--cwd", "it must begin with / and have at most 4095 bytes"],
  "body.env": ["--env"],
  "body.wakeAtMs": ["--wake-at", "it must be before the year 10000"],
  "body.expiresAtMs": ["--expires", "it must be before the year 10000"],
  "body.forMs": ["--for", `it must be 1s to ${formatDuration(restLimits.holdMsMax)}`],
  "body.timeoutMs": ["--timeout", "it must be 1ms to 366d"],
  "body.argv": ["<program> and its arguments"],
};

function sizes(of: "memory" | "disk"): string {
  const [min, max, step] = (["Min", "Max", "Step"] as const).map((bound) =>
    formatSize(agentLimits[`${of}Bytes${bound}`]),
  );
  return `it must be ${min} to ${max} in steps of ${step}`;
}

/** Codes of a checkpoint that cannot be continued; the disk may still be good. */
const damaged = new Set<string>(["checkpoint_digest_mismatch", "checkpoint_signature"]);

function wayOut(command: Command): string | undefined {
  if (command.opts<{ from?: string }>().from === "disk") return undefined;
  const isAgent = command.registeredArguments[0]?.name() === "agent";
  const agent = isAgent ? String(command.args[0]) : "NAME";
  return `\`perdure recover ${agent} --from disk\` starts it cold from its newest disk.`;
}

function changed({ code, details, cause }: PerdureError, message: string, hint: string) {
  return new PerdureError(code, message, { hint, details, cause });
}
