/** `forward` and `port`: programs inside that listen are reached from this host, or by their preview hosts. */
import { constants } from "node:os";
import { Option } from "commander";
import type { Command } from "commander";
import { InvalidArgumentError } from "commander";
import type { PortView } from "@perdure/sdk";
import { forwardPort } from "../port-forward.ts";
import type { Forwarding } from "../port-forward.ts";
import { addSharedOptions, withSession } from "../session.ts";
import type { SharedOptions } from "../session.ts";
import { pairs } from "../table.ts";
import { carryOut } from "./verb.ts";

const PORT_MAX = 65_535;

export function addPortCommands(program: Command): void {
  addForwardCommand(program);
  addPortCommand(program);
}

function portFrom(text: string, min: number): number {
  const port = Number(text);
  if (/^[0-9]{1,5}$/.test(text) && port >= min && port <= PORT_MAX) return port;
  throw new InvalidArgumentError(`"${text}" is no port.`);
}

interface Wanted {
  readonly localPort: number;
  readonly port: number;
}

/** `8000`, `8080:8000`, `0:8000`. */
function parseForward(text: string, before: readonly Wanted[] = []): Wanted[] {
  const [first = "", second, ...more] = text.split(":");
  if (more.length > 0) throw new InvalidArgumentError(`"${text}" is no [LOCAL:]PORT.`);
  const port = portFrom(second ?? first, 1);
  return [...before, { localPort: second === undefined ? port : portFrom(first, 0), port }];
}

function addForwardCommand(program: Command): void {
  const command = program
    .command("forward")
    .description("listen on ports of this host, and pass connections to ports of an agent")
    .argument("<agent>", "name or id")
    .argument("<[local:]port...>", "the port inside, and where to listen (0: any)", parseForward)
    .addHelpText(
      "after",
      `
Listens on 127.0.0.1 until Ctrl-C. A connection wakes the agent where it is asleep. When the agent sleeps, or the
daemon restarts, open connections are reset and new ones are passed on.

Examples:
  perdure forward builder 8000
  perdure forward builder 5432:5432 0:8000`,
    );
  addSharedOptions(command).action(
    async (agent: string, wanted: readonly Wanted[], options: SharedOptions) => {
      await withSession(options, async ({ perdure, print, json }) => {
        const stopped = new AbortController();
        const interrupted = Promise.withResolvers<number>();
        for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
          process.once(signal, () => interrupted.resolve(128 + constants.signals[signal]));
        }
        await perdure.show(agent);
        try {
          for (const each of wanted) {
            const forwarding = { agent, ...each };
            const made = await forwardPort(perdure, forwarding, { failed }, stopped.signal);
            print(made, `${forwardText(made)}\n`);
          }
          return await interrupted.promise;
        } finally {
          stopped.abort();
        }

        function failed({ port }: Forwarding, error: Error & { toJSON(): object }): void {
          const text = json
            ? JSON.stringify({ port, error: error.toJSON() })
            : `perdure: port ${port}: ${error.message}`;
          process.stderr.write(`${text}\n`);
        }
      });
    },
  );
}

function forwardText({ agent, port, localPort }: Forwarding): string {
  return `127.0.0.1:${localPort} is port ${port} of agent "${agent}"`;
}

interface PortOptions extends SharedOptions {
  readonly public?: boolean;
  readonly private?: boolean;
  readonly renewToken?: boolean;
}

function addPortCommand(program: Command): void {
  const command = program
    .command("port")
    .description("say who may visit a port of an agent over HTTP, and show its address and token")
    .argument("<agent>", "name or id")
    .argument("<port>", "inside", (text) => portFrom(text, 1))
    .addOption(new Option("--public", "everybody may visit it").conflicts("private"))
    .option("--private", "whoever has its token or an API key may (at first)")
    .option("--renew-token", "another token; the one of before lets nobody in any more")
    .addHelpText(
      "after",
      `
The address works where the daemon listens on TCP (perdure serve --listen). With "?perdure_token=TOKEN" behind it
a browser is let in; programs send "x-perdure-token: TOKEN".

Examples:
  perdure port builder 8000
  perdure port builder 8000 --public`,
    );
  addSharedOptions(command).action(async (agent: string, port: number, options: PortOptions) => {
    const isPublic = options.public === true ? true : options.private === true ? false : undefined;
    const request = {
      ...(isPublic === undefined ? {} : { public: isPublic }),
      ...(options.renewToken === undefined ? {} : { renewToken: options.renewToken }),
    };
    await carryOut(options, `Setting port ${port} of agent "${agent}"`, async ({ perdure }) => {
      const value = await perdure.setPort(agent, port, request);
      return { value, text: portText(value) };
    });
  });
}

function portText({ url, token, public: isPublic }: PortView): string {
  return pairs([
    ["address", url ?? "none: the daemon does not listen on TCP"],
    ["visitors", isPublic ? "everybody" : "with its token, or an API key"],
    ["token", token],
  ]);
}
