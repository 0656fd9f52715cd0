/**
 * This process's terminal, where a program elsewhere is shown on it: raw while it is, and as it was before in
 * any case that a process lives to see.
 */
import { spawnSync } from "node:child_process";
import type { TerminalSize } from "@perdure/sdk";

const SIZE_DEFAULT: TerminalSize = { rows: 24, columns: 80 };
const CELLS_MAX = 4096;

/** What a program may have switched on and did not live to switch off: other screen, mouse, paste, no cursor, colour. */
const PLAIN = "\x1b[?1049l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?2004l\x1b[?25h\x1b[0m";

export interface LocalTerminal {
  /** Calls back with each new size, until `restore`. */
  onResize(changed: (size: TerminalSize) => void): void;
  /** Undoes everything. `left`: the program goes on, and what it switched on is switched off. */
  restore(left?: boolean): void;
}

export function terminalSize(): TerminalSize {
  const { stdout } = process;
  // One that was not told its size says 0.
  if (!stdout.isTTY || stdout.rows < 1 || stdout.columns < 1) return SIZE_DEFAULT;
  return {
    rows: Math.min(stdout.rows, CELLS_MAX),
    columns: Math.min(stdout.columns, CELLS_MAX),
  };
}

/** Makes it raw where there is one. */
export function takeTerminal(): LocalTerminal {
  const { stdin, stdout } = process;
  const isRaw = stdin.isTTY;
  const listeners: (() => void)[] = [];
  const restore = (left = false): void => {
    process.off("exit", onExit);
    for (const listener of listeners.splice(0)) stdout.off("resize", listener);
    if (isRaw) stdin.setRawMode(false);
    if (left && stdout.isTTY) stdout.write(PLAIN);
  };
  const onExit = (): void => restore();
  process.once("exit", onExit);
  if (isRaw) {
    stdin.setRawMode(true);
    passOutput();
  }
  return {
    onResize: (changed) => {
      const listener = (): void => changed(terminalSize());
      listeners.push(listener);
      stdout.on("resize", listener);
    },
    restore,
  };
}

/**
 * Node's raw mode still makes CR LF of each LF, which a program that moves the cursor itself does not expect. Where
 * there is no stty that is all that is lost; what `setRawMode(false)` restores is the state before both.
 */
function passOutput(): void {
  spawnSync("stty", ["-opost"], { stdio: ["inherit", "ignore", "ignore"] });
}
