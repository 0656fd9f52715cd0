/**
 * Says on stderr what takes long, and how far it is: a line that is drawn anew on a terminal, else a line at
 * first and one now and then. What is over within a second is done without a word.
 */
const BEGIN_AFTER_MS = 1000;
const FRAME_MS = 100;
/** Where no terminal shows it. */
const LINE_EVERY_MS = 5000;
const frames = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

export interface Progress {
  /** How far it is, from now on. */
  show(detail: string): void;
  /** Takes the line away. Idempotent. */
  end(): void;
}

/** Not for programs: `json` is silent. To be ended, however the work ends. */
export function beginProgress(json: boolean, title: string): Progress {
  if (json) return { show: () => undefined, end: () => undefined };
  const began = performance.now();
  const terminal = process.stderr.isTTY;
  let frame = 0;
  let said = title;
  let timer = setTimeout(draw, BEGIN_AFTER_MS, true);

  function draw(isFirst: boolean): void {
    const seconds = Math.floor((performance.now() - began) / 1000);
    const shape = frames[frame++ % frames.length] ?? "";
    if (terminal) process.stderr.write(`\r\x1b[2K${shape} ${said} … ${seconds} s`);
    else process.stderr.write(isFirst ? `${said} …\n` : `${said}, ${seconds} s so far …\n`);
    timer = setTimeout(draw, terminal ? FRAME_MS : LINE_EVERY_MS, false);
  }
  return {
    show: (detail) => {
      said = `${title}: ${detail}`;
    },
    end: () => {
      clearTimeout(timer);
      if (terminal && frame > 0) process.stderr.write("\r\x1b[2K");
      frame = 0;
    },
  };
}

/** The result of `work`, with progress that only knows the time. */
export async function during<T>(json: boolean, title: string, work: Promise<T>): Promise<T> {
  const progress = beginProgress(json, title);
  try {
    return await work;
  } finally {
    progress.end();
  }
}
