/**
 * The guest's console. QEMU keeps a ring of it; reading takes bytes out of the ring, so what was read
 * is kept here.
 */
import { consoleChardev } from "./command-line.ts";
import { qemuLimits } from "./limit.ts";
import type { QmpClient } from "./qmp.ts";

export class ConsoleTail {
  readonly #qmp: QmpClient;
  #tail = Buffer.alloc(0);

  constructor(qmp: QmpClient) {
    this.#qmp = qmp;
  }

  /** The last bytes so far; what is already here where the VM process does not answer. */
  async read(bytesMax: number = qemuLimits.consoleTailBytes): Promise<string> {
    try {
      const data = await this.#qmp.execute(
        "ringbuf-read",
        { device: consoleChardev, size: qemuLimits.consoleRingBytes, format: "base64" },
        qemuLimits.consoleMs,
      );
      const more = Buffer.from(typeof data === "string" ? data : "", "base64");
      this.#tail = Buffer.concat([this.#tail, more]).subarray(-qemuLimits.consoleRingBytes);
    } catch {
      // A dead process has said what it has said.
    }
    return printable(this.#tail.subarray(-bytesMax).toString("utf8"));
  }
}

/** Without control characters, which could do things to a terminal. */
function printable(text: string): string {
  // eslint-disable-next-line no-control-regex
  return text.replaceAll("\r", "").replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, "·");
}
