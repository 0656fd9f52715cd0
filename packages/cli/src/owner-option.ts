/** Options of `create` and `set` about what an owner says of an agent: labels, variables, an end. */
import { InvalidArgumentError, Option } from "commander";
import type { Command } from "commander";
import { orNull, parseDurationOrNever, type OrNever } from "./quantity.ts";

type Pairs = Readonly<Record<string, string>>;

export interface OwnerOptions {
  readonly label?: Pairs;
  readonly env?: Pairs;
  readonly endAfter?: OrNever;
  readonly atEnd?: "sleep" | "remove";
}

export function addOwnerOptions(command: Command): Command {
  return command
    .option("--label <key=value...>", "labels, all that it is to have; for list --label", takePair)
    .option("--env <key=value...>", "variables of every program that a call starts", takePair)
    .option(
      "--end-after <time>",
      "put it to sleep after so long, whatever it does, as in 8h; never",
      parseDurationOrNever,
    )
    .addOption(
      new Option("--at-end <what>", "what happens at that end (default: sleep)").choices([
        "sleep",
        "remove",
      ]),
    );
}

/** As the API takes them. */
export function ownerSettings(command: Command, options: OwnerOptions) {
  const { label: labels, env, endAfter, atEnd } = options;
  if (atEnd !== undefined && (endAfter === undefined || endAfter === "never")) {
    command.error("error: --at-end goes with --end-after");
  }
  const afterMs = endAfter === undefined ? undefined : orNull(endAfter);
  const then = atEnd === undefined ? {} : { then: atEnd };
  return {
    ...(labels === undefined ? {} : { labels: { ...labels } }),
    ...(env === undefined ? {} : { env: { ...env } }),
    ...(afterMs === undefined ? {} : { end: afterMs === null ? null : { afterMs, ...then } }),
  };
}

/** One more of `KEY=VALUE`. */
export function takePair(text: string, before: Pairs = {}): Pairs {
  const at = text.indexOf("=");
  if (at < 1) throw new InvalidArgumentError("Write it as KEY=VALUE.");
  return { ...before, [text.slice(0, at)]: text.slice(at + 1) };
}
