/**
 * Options of `exec` and `shell` may stand before and after the agent, and everything from the program on belongs
 * to the program. Commander knows no such rule: this puts a `--` in front of the program.
 */
const withProgram = new Set(["exec", "shell"]);
const withValue = new Set([
  ...["-u", "--user", "--cwd", "-e", "--env", "--timeout"],
  ...["--attach", "--offset", "--socket", "--home", "--url"],
]);

export function separateProgram(argv: readonly string[]): string[] {
  if (!withProgram.has(argv[0] ?? "")) return [...argv];
  let agents = 0;
  for (let at = 1; at < argv.length; at++) {
    const word = argv[at] ?? "";
    if (word === "--") break;
    if (word.startsWith("-") && word !== "-") {
      if (withValue.has(word)) at += 1;
      continue;
    }
    if (agents === 1) return [...argv.slice(0, at), "--", ...argv.slice(at)];
    agents += 1;
  }
  return [...argv];
}
