/** `verify`: whether what an agent has stored is still what was written. */
import type { Command } from "commander";
import type { VerifiedCheckpoint, VerifiedPart, Verification } from "@perdure/sdk";
import { beginProgress } from "../progress.ts";
import { formatSize } from "../quantity.ts";
import { addSharedOptions, withSession } from "../session.ts";
import type { SharedOptions } from "../session.ts";
import { table } from "../table.ts";

interface Options extends SharedOptions {
  readonly checkpoint?: string;
}

/** All that a verification said, for `--json`. */
interface Result {
  readonly checkpoints: VerifiedCheckpoint[];
  readonly good: number;
  readonly damaged: number;
  readonly gone: number;
}

export function addVerifyCommand(program: Command): void {
  const command = program
    .command("verify")
    .description("read all that the agent's checkpoints name, and say what is damaged")
    .argument("<agent>", "name or id")
    .option("--checkpoint <checkpoint>", "name or id; default: every one that is kept")
    .addHelpText(
      "after",
      "\nNothing is changed, and the agent goes on meanwhile. The exit code is 1 where something is damaged." +
        "\n\nExample:\n  perdure verify builder",
    );
  addSharedOptions(command).action(async (agent: string, options: Options) => {
    const { checkpoint } = options;
    await withSession(options, async ({ perdure, json, print }) => {
      const wanted = checkpoint === undefined ? {} : { checkpoint };
      const result = await collect(json, agent, perdure.verify(agent, wanted));
      print(result, describe(result));
      return result.damaged > 0 ? 1 : 0;
    });
  });
}

async function collect(
  json: boolean,
  agent: string,
  events: AsyncIterable<Verification>,
): Promise<Result> {
  const checkpoints: VerifiedCheckpoint[] = [];
  const counts = { good: 0, damaged: 0, gone: 0 };
  const progress = beginProgress(json, `Verifying agent "${agent}"`);
  try {
    for await (const event of events) {
      switch (event.type) {
        case "progress": {
          const { checkpoint, readBytes, totalBytes } = event;
          progress.show(`${checkpoint}: ${formatSize(readBytes)} of ${formatSize(totalBytes)}`);
          break;
        }
        case "checkpoint": {
          const { type: _type, ...found } = event;
          checkpoints.push(found);
          break;
        }
        case "end": {
          const { good, damaged, gone } = event;
          Object.assign(counts, { good, damaged, gone });
        }
      }
    }
  } finally {
    progress.end();
  }
  return { checkpoints, ...counts };
}

function describe({ checkpoints, good, damaged, gone }: Result): string {
  if (checkpoints.length === 0) return "There is no checkpoint to verify\n";
  const rows = checkpoints.map(({ checkpoint, name, kind, verdict, parts }) => [
    checkpoint,
    name ?? "-",
    kind,
    verdict,
    parts.filter(isDamaged).map(inWords).join("; "),
  ]);
  const counts = [`${good} good`, `${damaged} damaged`, ...(gone === 0 ? [] : [`${gone} gone`])];
  return `${table([["ID", "NAME", "KIND", "VERDICT", "DAMAGE"], ...rows])}${counts.join(", ")}\n`;
}

function isDamaged({ verdict }: VerifiedPart): boolean {
  return verdict === "damaged";
}

function inWords({ part, name, check, detail }: VerifiedPart): string {
  return `${part}${name === null ? "" : ` ${name}`}: ${detail ?? check ?? "damaged"}`;
}
