/**
 * The programs that the fake guest knows, as steps of plain data: a process can be saved half-way.
 *
 * `sh -c` takes simple commands with `;` between them, also after `exec`: `echo WORDS [>&2]`, `sleep SECONDS`, `cat`,
 * `head -c COUNT /dev/zero [>&2]`, `read NAME` (takes a line of input), `stty size`, `exit CODE`, `true`,
 * `false`. The same scripts run in a real shell.
 */
import { status } from "../operation.ts";
import { FakeFailure } from "./fake-file.ts";

/** 1 is stdout, 2 is stderr. */
type Channel = 1 | 2;

export type FakeStep =
  | { readonly kind: "write"; readonly channel: Channel; readonly text: string }
  | { readonly kind: "fill"; readonly channel: Channel; readonly bytes: number }
  | { readonly kind: "sleep"; readonly ms: number }
  | { readonly kind: "copy" }
  | { readonly kind: "line" }
  | { readonly kind: "size" }
  | { readonly kind: "exit"; readonly code: number };

export function fakeSteps(argv: readonly string[]): FakeStep[] {
  const [program = "", option, script = ""] = argv;
  if (nameOf(program) === "sh" && option === "-c") {
    const commands = script.split(";").map((command) => command.trim().split(/\s+/));
    return commands.filter((words) => words[0] !== "").map(step);
  }
  if (!program.startsWith("/bin/")) throw notFound(program);
  return [step(argv)];
}

function step(words: readonly string[]): FakeStep {
  const [program = "", ...rest] = words;
  const channel: Channel = rest.at(-1) === ">&2" ? 2 : 1;
  const args = channel === 2 ? rest.slice(0, -1) : rest;
  switch (nameOf(program)) {
    case "echo":
      return { kind: "write", channel, text: `${args.join(" ")}\n` };
    case "head":
      return { kind: "fill", channel, bytes: Number(args[1]) };
    case "sleep":
      return { kind: "sleep", ms: Number(args[0]) * 1000 };
    case "cat":
      return { kind: "copy" };
    case "exec":
      return step(rest);
    case "read":
      return { kind: "line" };
    case "stty":
      return { kind: "size" };
    case "exit":
      return { kind: "exit", code: Number(args[0]) };
    case "true":
      return { kind: "write", channel, text: "" };
    case "false":
      return { kind: "exit", code: 1 };
    default:
      throw notFound(program);
  }
}

function nameOf(program: string): string {
  return program.slice(program.lastIndexOf("/") + 1);
}

function notFound(program: string): FakeFailure {
  return new FakeFailure(status.execFailed, `Cannot start ${program}: ENOENT`);
}
