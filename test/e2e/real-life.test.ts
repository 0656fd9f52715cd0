/**
 * Programs as people run them, inside: a browser that is logged in, a language server, a database server. They
 * survive sleep, fork, another daemon and a cold start. Takes an image with a browser in it, and minutes under
 * emulation: only in the soak tier.
 */
import { createReadStream } from "node:fs";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DaemonUnderTest, text, until } from "./daemon-under-test.ts";

const isSoak = process.env["PERDURE_TIER"] === "soak";
const CYCLES = 20;
const PATIENCE_MS = 900_000;
const BUILD_MS = 1_800_000;
const scripts = join(import.meta.dirname, "real-life");
const under = new DaemonUnderTest();

const size = { image: "real-life", memoryBytes: 2 ** 31, diskBytes: 2 ** 33 } as const;

async function install(name: string, ...files: string[]): Promise<void> {
  for (const file of files) {
    const path = join(scripts, file);
    const { size: bytes } = await stat(path);
    await under.client.writeFile(name, `/home/user/${file}`, createReadStream(path), {
      size: bytes,
    });
  }
}

/** What a program prints, as JSON. */
async function json(name: string, ...argv: string[]): Promise<unknown> {
  const { exitCode, stdout, stderr } = await under.client.run(name, argv);
  if (exitCode !== 0) throw new Error(`${argv.join(" ")}: ${text(stderr)}`);
  return JSON.parse(text(stdout));
}

describe.skipIf(!isSoak)(
  "real life (in the soak tier: minutes, and an image with a browser)",
  () => {
    beforeAll(async () => {
      await under.start();
      const built = await under.perdure([
        "image",
        "build",
        join(scripts, "recipe.json"),
        "--name",
        "real-life",
      ]);
      if (built.code !== 0) throw new Error(built.stderr);
    }, BUILD_MS);
    afterAll(async () => {
      expect(await under.end()).toEqual([]);
    }, PATIENCE_MS);

    test(
      "a browser stays logged in through sleep, fork, another daemon, and a cold start from a clean disk",
      async () => {
        const { client } = under;
        await client.create({ name: "web", ...size });
        await install("web", "site.py", "browser.py");
        const browser = (name: string, verb: "goto" | "evaluate", argument: string) =>
          json(name, "python3", "/home/user/browser.py", verb, argument);
        const open = async (name: string): Promise<void> => {
          // Also of a daemon that came later.
          const { client } = under;
          await client.exec(name, ["python3", "/home/user/site.py", "8080"]);
          await client.exec(name, [
            "chromium",
            ...["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"],
            ...["--disable-background-networking", "--disable-component-update", "--disable-sync"],
            ...[
              "--user-data-dir=/home/user/profile",
              "--remote-debugging-port=9222",
              "about:blank",
            ],
          ]);
        };
        const user = (name: string) =>
          browser(name, "evaluate", "document.getElementById('user').textContent");
        const counter = async (name: string) =>
          Number(await browser(name, "evaluate", "window.counter"));
        /** Of this very page, which nobody loaded again. */
        const mark = (name: string) => browser(name, "evaluate", "window.mark");
        const isMarked = "has this in its memory";

        await open("web");
        expect(await browser("web", "goto", "http://127.0.0.1:8080/login?alice")).toBe(
          "home of alice",
        );
        expect(await browser("web", "evaluate", `window.mark = "${isMarked}"`)).toBe(isMarked);
        const before = await counter("web");

        await client.sleep("web");
        const afterSleep = await counter("web");
        expect(afterSleep).toBeGreaterThan(before);
        expect(await user("web")).toBe("alice");
        expect(await mark("web")).toBe(isMarked);

        await client.fork("web", "web-fork");
        expect(await mark("web-fork")).toBe(isMarked);
        expect(await counter("web-fork")).toBeGreaterThan(afterSleep);
        expect(await browser("web-fork", "goto", "http://127.0.0.1:8080/")).toBe("home of alice");
        await client.remove("web-fork");

        await under.restart();
        expect(await mark("web")).toBe(isMarked);
        expect(await counter("web")).toBeGreaterThan(afterSleep);
        expect(await browser("web", "goto", "http://127.0.0.1:8080/")).toBe("home of alice");

        // A browser writes its cookies to its profile within half a minute; then the disk alone has them.
        const cookies = `import sqlite3
kept = sqlite3.connect("file:/home/user/profile/Default/Cookies?mode=ro", uri=True)
print(kept.execute("select count(*) from cookies where name = 'session'").fetchone()[0])`;
        await until(
          "the cookie to be in the profile",
          async () => {
            const argv = ["/usr/bin/python3", "-c", cookies];
            // While the browser writes it, it is locked.
            return text((await under.client.run("web", argv)).stdout).trim() === "1";
          },
          PATIENCE_MS,
        );
        await under.client.stop("web");
        await under.client.start("web");
        await open("web");
        expect(await browser("web", "goto", "http://127.0.0.1:8080/")).toBe("home of alice");
        await under.client.remove("web");
      },
      PATIENCE_MS * 2,
    );

    test(
      `a language server and a database server go on through ${CYCLES} sleeps`,
      async () => {
        const { client } = under;
        await client.create({ name: "work", ...size });
        await install("work", "language-client.py");
        await client.exec("work", ["python3", "/home/user/language-client.py"]);
        await client.exec("work", [
          "redis-server",
          "--dir",
          "/home/user",
          "--appendonly",
          "yes",
          "--appendfsync",
          "always",
        ]);
        const redis = async (...words: string[]): Promise<string> =>
          under.sh("work", `redis-cli ${words.join(" ")}`, "user");
        await until(
          "the database to answer",
          async () => (await redis("ping").catch(() => "")) === "PONG",
          PATIENCE_MS,
        );
        await until(
          "the language server's client",
          async () => (await under.sh("work", "ls /tmp")).includes("asked"),
          PATIENCE_MS,
        );
        const ask = (name: string) =>
          json("work", "sh", "-c", `echo ${name} > /tmp/asked; cat /tmp/answered`) as Promise<{
            line: number;
            server: number;
          }>;

        const first = await ask("first");
        expect(first.line).toBe(0);
        const { server } = first;
        const redisPid = await redis("info", "server", "|", "grep", "process_id");
        for (let cycle = 1; cycle <= CYCLES; cycle++) {
          await redis("set", `key${cycle}`, `value${cycle}`);
          await client.sleep("work");
          expect(await ask(`function${cycle}`)).toEqual({ line: 0, server });
          for (const earlier of [1, cycle])
            expect(await redis("get", `key${earlier}`)).toBe(`value${earlier}`);
        }
        expect(await redis("dbsize")).toBe(String(CYCLES));
        expect(await redis("info", "server", "|", "grep", "process_id")).toBe(redisPid);
        await client.remove("work");
      },
      PATIENCE_MS * 2,
    );
  },
);
