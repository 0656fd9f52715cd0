/** Programs on a terminal: they are left, sleep with their agent, and are read on where one left off. */
import type { Attachment } from "@perdure/sdk";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DaemonUnderTest } from "./daemon-under-test.ts";

/** All that was read of one terminal, over every attachment to it. */
class Screen {
  text = "";
  exitCode: number | null | undefined;
  #offset = 0;

  /** Reads on until the text is there, or the program has ended. */
  async until(attachment: Attachment, wanted: string | null): Promise<void> {
    for await (const event of attachment) {
      if (event.type === "cut") throw new Error(`Output from ${event.from} on was cut`);
      if (event.type === "interrupted") throw new Error(`Interrupted: ${event.reason}`);
      if (event.type === "exit") {
        this.exitCode = event.exitCode;
        if (wanted !== null) throw new Error(`Ended before "${wanted}": ${this.text}`);
        return;
      }
      expect(event.offset, "neither gap nor repeat").toBe(this.#offset);
      this.#offset += event.bytes.length;
      this.text += Buffer.from(event.bytes).toString("latin1");
      if (wanted !== null && this.text.includes(wanted)) return;
    }
  }
}

describe("a terminal", () => {
  const under = new DaemonUnderTest();

  beforeAll(async () => {
    await under.start();
    await under.client.create({ name: "t" });
  });
  afterAll(async () => {
    expect(await under.end()).toEqual([]);
  });

  test("C43 a shell that was left in the middle of its work sleeps, and is read on without gap or repeat", async () => {
    const screen = new Screen();
    const shell = ["bash", "--norc", "-i"];
    const options = { rows: 30, columns: 90, env: { PS1: "$ " } };
    let terminal = await under.client.terminal("t", shell, options);
    const { process } = terminal;
    const again = async (): Promise<void> => {
      terminal = await under.client.attach("t", process, { offset: terminal.offset });
    };
    await screen.until(terminal, "$ ");
    await again();
    await terminal.write("secret=$((6 * 7)); stty size; tty\n");
    await screen.until(terminal, "30 90\r\n/dev/pts/0\r\n");
    await again();
    await terminal.resize({ rows: 40, columns: 100 });
    // Left half-way through: the line is typed but not entered, and a program counts behind it.
    await terminal.write("(for i in 1 2 3 4 5 6 7 8 9; do echo tick $i; sleep 0.2; done) & stty s");
    await screen.until(terminal, "stty s");
    await under.client.sleep("t");
    expect((await under.client.show("t")).state).toBe("asleep");
    await again();
    await terminal.write("ize; wait; echo secret $secret\n");
    await screen.until(terminal, "secret 42\r\n");
    expect(screen.text).toContain("\r\n40 100\r\n");
    const ticks = [...screen.text.matchAll(/^tick (\d)\r$/gm)].map(([, count]) => Number(count));
    expect(ticks).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9]);

    await again();
    await terminal.write("sleep 600\n");
    await screen.until(terminal, "sleep 600\r\n");
    await under.client.sleep("t");
    await again();
    await terminal.write("\x03");
    await screen.until(terminal, "^C");
    await again();
    await terminal.write("exit 5\n");
    await screen.until(terminal, null);
    expect(screen.exitCode).toBe(5);
    const whole = new Screen();
    await whole.until(await under.client.attach("t", process), null);
    expect(whole.text).toBe(screen.text);
  });

  test("C43 a terminal belongs to its user, and ends with all that runs on it", async () => {
    const script = "stat -c '%U %a' $(tty); sleep 1234 & sleep 1234";
    const terminal = await under.client.terminal("t", ["sh", "-c", script]);
    const screen = new Screen();
    await screen.until(terminal, "user 620\r\n");
    await under.client.process("t", terminal.process).signal("SIGKILL");
    expect(await under.sh("t", "pgrep -c -x sleep || true")).toBe("0");
  });
});
