import { CommanderError } from "commander";
import type { Command } from "commander";
import { beforeEach, expect, it, vi } from "vitest";
import { separateProgram } from "./exec-arguments.ts";
import { createProgram } from "./program.ts";

// A call that is taken by mistake neither starts a daemon nor reaches this host's own.
beforeEach(() => {
  vi.stubEnv("PERDURE_AUTOSTART", "0");
  vi.stubEnv("PERDURE_SOCKET", "/no/such/socket");
  return () => vi.unstubAllEnvs();
});

/** A program whose words are collected in place of being written. */
function quiet(): { program: Command; words: string[] } {
  const words: string[] = [];
  const write = (text: string): void => void words.push(text);
  const program = createProgram(false);
  const all = (command: Command): Command[] => [command, ...command.commands.flatMap(all)];
  for (const command of all(program)) command.configureOutput({ writeOut: write, writeErr: write });
  return { program, words };
}

it.each([
  ["create"],
  ["create", "a1", "a2"],
  ["create", "a1", "--memory", "lots"],
  ["create", "a1", "--colour", "red"],
  ["list", "--state", "sleepy"],
  ["recover", "a1", "--from", "memory"],
  ["exec", "a1", "--env", "novalue", "ls"],
  ["exec", "a1", "--timeout", "soon", "ls"],
  ["exec", "a1", "--attach", "x"],
  ["exec", "a1", "--attach", "1", "ls"],
  ["exec", "a1", "--attach", "1", "--detach"],
  ["exec", "a1", "--offset", "7", "ls"],
  ["exec", "a1", "--tty", "--json", "ls"],
  ["shell"],
  ["shell", "a1", "--json"],
  ["shell", "a1", "--attach", "1", "ls"],
  ["shell", "a1", "--attach", "1", "--user", "root"],
  ["shell", "a1", "--offset", "7"],
  ["cp", "a", "b"],
  ["cp", "a1:/a", "a2:/b"],
  ["cp", "a", "a1:/b", "--mode", "rwx"],
  ["export", "a1"],
  ["export", "a1", "--in-clear", "--passphrase-file", "x"],
  ["import", "a1.perdure"],
  ["daemon", "pause"],
])("refuses %s %s %s %s before anything is done", async (...args) => {
  const { program, words } = quiet();
  const parsing = program.parseAsync(separateProgram(args), { from: "user" });
  await expect(parsing).rejects.toBeInstanceOf(CommanderError);
  expect(words.join("")).toMatch(/^error: /);
});

it.each([
  ["exec -d -i a1 cat", ["--detach", "--interactive"]],
  ["exec --offset 7 a1 cat", ["--offset", "--attach"]],
])("refuses %j and names both options", async (line, options) => {
  const { program, words } = quiet();
  const parsing = program.parseAsync(separateProgram(line.split(" ")), { from: "user" });
  await expect(parsing).rejects.toBeInstanceOf(CommanderError);
  for (const option of options) expect(words.join("")).toContain(option);
});

it("has every verb, each explained with an example and the options of all", () => {
  const { program, words } = quiet();
  const names = program.commands.map((command) => command.name());
  expect(names.sort()).toEqual(
    (
      "checkpoint checkpoints complete cp create daemon doctor drop egress events exec export file fork forward gc hold hot image import key list port processes quarantine " +
      "recover release remove report restore serve set shell show sleep start stop verify wake why"
    ).split(" "),
  );
  const ours = program.commands.filter((command) => command.name() !== "complete");
  for (const command of ours.flatMap((verb) => [verb, ...verb.commands])) {
    words.length = 0;
    command.outputHelp();
    const help = words.join("");
    expect(help, command.name()).toMatch(/Examples?:\n {2}.*perdure /);
    // One that only has others below it is not called itself.
    if (command.commands.length > 0) continue;
    expect(help, command.name()).toMatch(/--json[^]*--socket <path>[^]*--home <folder>/);
  }
});

it.each([
  ["exec a1 ls -l", "exec a1 -- ls -l"],
  ["exec a1 -- ls -l", "exec a1 -- ls -l"],
  ["exec -- a1 ls", "exec -- a1 ls"],
  ["exec -i a1 --user root ls --user", "exec -i a1 --user root -- ls --user"],
  ["exec -e A=1 a1 --env=B=2 sh -c -- x", "exec -e A=1 a1 --env=B=2 -- sh -c -- x"],
  ["exec a1 --attach 3", "exec a1 --attach 3"],
  ["exec --url http://h:1 a1 ls -l", "exec --url http://h:1 a1 -- ls -l"],
  ["exec a1", "exec a1"],
  ["shell a1 --user root htop -d 5", "shell a1 --user root -- htop -d 5"],
  ["shell a1", "shell a1"],
  ["show a1 --json", "show a1 --json"],
])("takes %j for %j", (line, separated) => {
  expect(separateProgram(line.split(" ")).join(" ")).toBe(separated);
});
