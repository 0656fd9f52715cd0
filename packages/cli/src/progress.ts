/** Says on stderr that something takes long: a spinner on a terminal, else one line. */
const BEGIN_AFTER_MS = 1000;
const FRAME_MS = 100;
const frames = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/** Not for programs: `json` is silent. */
export function during<T>(json: boolean, title: string, work: Promise<T>): Promise<T> {
  return json ? work : withProgress(title, work);
}

async function withProgress<T>(title: string, work: Promise<T>): Promise<T> {
  const began = performance.now();
  const terminal = process.stderr.isTTY;
  let frame = 0;
  let timer = setTimeout(begin, BEGIN_AFTER_MS);

  function begin(): void {
    if (!terminal) process.stderr.write(`${title} …\n`);
    else draw();
  }
  function draw(): void {
    const seconds = Math.floor((performance.now() - began) / 1000);
    process.stderr.write(
      `\r\x1b[2K${frames[frame++ % frames.length] ?? ""} ${title} … ${seconds} s`,
    );
    timer = setTimeout(draw, FRAME_MS);
  }
  try {
    return await work;
  } finally {
    clearTimeout(timer);
    if (frame > 0) process.stderr.write("\r\x1b[2K");
  }
}
