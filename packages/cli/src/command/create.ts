import { Option } from "commander";
import type { Command } from "commander";
import { addOwnerOptions, ownerSettings, type OwnerOptions } from "../owner-option.ts";
import { readPolicy } from "../egress-rule.ts";
import {
  formatSize,
  orNull,
  parseCount,
  parseDurationOrNever,
  parseSize,
  type OrNever,
} from "../quantity.ts";
import { addSharedOptions, withSession } from "../session.ts";
import type { SharedOptions } from "../session.ts";

interface CreateOptions extends SharedOptions, OwnerOptions {
  readonly image?: string;
  readonly memory?: number;
  readonly cpus?: number;
  readonly disk?: number;
  readonly onCrash?: "checkpoint" | "disk" | "ask";
  /** False: `--no-start`. */
  readonly start: boolean;
  readonly idleAfter?: OrNever;
  readonly checkpointEvery?: OrNever;
  readonly egress?: string;
}

export function addCreateCommand(program: Command): void {
  const command = program
    .command("create")
    .description("create an agent and wake it for the first time")
    .argument("<name>", "lower-case letters, digits and hyphens")
    .option("--image <name>", "image to boot (default: debian)")
    .option("--no-start", "do not start the image's own program by itself")
    .option("--memory <size>", "memory, as in 512M or 2G (default: 512M)", parseSize)
    .option("--cpus <count>", "CPUs (default: 1)", parseCount(1))
    .option("--disk <size>", "disk, as in 8G (default: 8G)", parseSize)
    .addOption(
      new Option("--on-crash <cut>", "what a crashed agent is recovered from").choices([
        "checkpoint",
        "disk",
        "ask",
      ]),
    )
    .option(
      "--idle-after <time>",
      "put to sleep after so long idle, as in 10m, or never (default: the daemon's, 60s)",
      parseDurationOrNever,
    )
    .option(
      "--checkpoint-every <time>",
      "checkpoint so often while something changes, or never (default: the daemon's, 60s)",
      parseDurationOrNever,
    )
    .option(
      "--egress <file>",
      "what may get out, as JSON (default: nothing; see egress); - is stdin",
    )
    .addHelpText("after", "\nExample:\n  perdure create builder --memory 1G --disk 16G");
  addOwnerOptions(command);
  addSharedOptions(command).action(async (name: string, options: CreateOptions) => {
    const { image, memory: memoryBytes, cpus, disk: diskBytes, onCrash } = options;
    const { idleAfter, checkpointEvery } = options;
    const rest = {
      ...(idleAfter === undefined ? {} : { idleAfterMs: orNull(idleAfter) }),
      ...(checkpointEvery === undefined ? {} : { checkpointEveryMs: orNull(checkpointEvery) }),
      ...ownerSettings(command, options),
    };
    await withSession(options, async ({ perdure, during, print }) => {
      const start = options.start ? {} : { start: false };
      const { egress: file } = options;
      const egress = file === undefined ? {} : { egress: await readPolicy(file) };
      const request = {
        ...rest,
        ...start,
        ...egress,
        name,
        image,
        memoryBytes,
        cpus,
        diskBytes,
        onCrash,
      };
      const agent = await during(`Creating agent "${name}"`, perdure.create(request));
      const { shape } = agent;
      const size = `${formatSize(shape.memoryBytes)} memory, ${shape.cpus} CPU, ${formatSize(shape.diskBytes)} disk`;
      print(agent, `Agent "${agent.name}" is ${agent.state}: ${size}\n`);
      return 0;
    });
  });
}
