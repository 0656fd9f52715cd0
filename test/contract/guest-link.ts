/**
 * Contract of the port `GuestLink`, for every kind of guest: the fake one and the real guest agent.
 *
 * A subject that cannot do something says why in `missing`; the tests of that are skipped with it.
 */
import { PerdureError, type ErrorCode } from "@perdure/protocol";
import { afterAll, beforeAll, describe, expect, test, type TestContext } from "vitest";
import type {
  GuestExec,
  GuestLink,
  OutputPiece,
} from "../../packages/daemon/src/core/ports/guest-link.ts";

export type GuestCapability =
  | "freeze"
  | "clock"
  | "entropy"
  | "identity"
  | "generation"
  | "stats"
  | "drop-caches"
  | "kill-tree";

export interface GuestLinkSubject {
  /** A new link to the same guest, not yet synchronised. Ends the epoch before. */
  connect(): Promise<GuestLink>;
  /** An account inside that may write in `folder`. */
  readonly user: string;
  readonly folder: string;
  readonly missing: Readonly<Partial<Record<GuestCapability, string>>>;
  close(): Promise<void>;
}

const DEADLINE_MS = 20_000;

export function guestLinkContract(name: string, open: () => Promise<GuestLinkSubject>): void {
  describe(`guest link contract: ${name}`, () => {
    let subject: GuestLinkSubject;
    let generation = 0;

    beforeAll(async () => {
      subject = await open();
    });
    afterAll(async () => {
      await subject.close();
    });

    async function synced(): Promise<GuestLink> {
      const link = await subject.connect();
      await link.sync(++generation, DEADLINE_MS);
      return link;
    }

    async function letOut(): Promise<GuestLink> {
      const link = await synced();
      link.letOut();
      return link;
    }

    function needs(context: TestContext, capability: GuestCapability): void {
      const why = subject.missing[capability];
      context.skip(why !== undefined, why);
    }

    function shell(script: string, more: Partial<GuestExec> = {}): GuestExec {
      const argv = ["/bin/sh", "-c", script];
      return { argv, env: {}, user: subject.user, stdin: false, ...more };
    }

    describe("epoch", () => {
      test("every connection begins a new epoch that answers", async () => {
        for (let i = 0; i < 5; i++) {
          const link = await synced();
          const info = await link.info(DEADLINE_MS);
          expect(info.version).not.toBe("");
          link.close("test");
          expect(await link.closed).toBe("test");
        }
      });

      test("a call before sync is refused", async () => {
        const link = await subject.connect();
        await refuses(link.info(DEADLINE_MS), "guest_unreachable");
        link.close("test");
      });

      test("a second sync is refused", async () => {
        const link = await synced();
        await refuses(link.sync(++generation, DEADLINE_MS), "internal");
        link.close("test");
      });

      test("calls after close are refused with the reason", async () => {
        const link = await letOut();
        link.close("sleep");
        const error = await refuses(link.processes(), "interrupted");
        expect(error.details["reason"]).toBe("sleep");
      });
    });

    describe("boundary", () => {
      test("user operations are refused until the agent is let out", async () => {
        const link = await synced();
        await refuses(link.exec(shell("true")), "agent_state");
        await refuses(link.processes(), "agent_state");
        await refuses(collect(link, 1, 0), "agent_state");
        await refuses(link.writeStdin(1, new Uint8Array(1), false), "agent_state");
        await refuses(link.signal(1, 9, true, DEADLINE_MS), "agent_state");
        await refuses(link.forget(1), "agent_state");
        await refuses(link.stat(subject.folder, subject.user), "agent_state");
        await refuses(link.readFile(`${subject.folder}/f`, subject.user), "agent_state");
        await refuses(write(link, "f", "text"), "agent_state");
        await link.info(DEADLINE_MS);
        link.letOut();
        await link.processes();
        link.close("test");
      });
    });

    describe("control", () => {
      test("the generation that was set is the one that info tells", async (context) => {
        needs(context, "generation");
        const link = await synced();
        await link.setGeneration(41, '{"generation":41}');
        expect((await link.info(DEADLINE_MS)).generation).toBe(41);
        link.close("test");
      });

      test("the clock is set within its bound", async (context) => {
        needs(context, "clock");
        const link = await synced();
        const { skewMs, boundMs, roundTrips } = await link.setClock(DEADLINE_MS);
        expect(Math.abs(skewMs)).toBeLessThanOrEqual(50 + boundMs);
        expect(boundMs).toBeGreaterThan(0);
        expect(roundTrips).toBeGreaterThan(0);
        link.close("test");
      });

      test("entropy is taken, 32 to 512 bytes", async (context) => {
        const link = await synced();
        await refuses(link.addEntropy(new Uint8Array(31)), "bad_request");
        await refuses(link.addEntropy(new Uint8Array(513)), "bad_request");
        needs(context, "entropy");
        await link.addEntropy(crypto.getRandomValues(new Uint8Array(64)));
        link.close("test");
      });

      test("flush is answered", async () => {
        const link = await synced();
        await link.flush(DEADLINE_MS);
        link.close("test");
      });

      test("statistics and timers are read", async (context) => {
        needs(context, "stats");
        const link = await synced();
        expect((await link.stats()).memTotalBytes).toBeGreaterThan(0);
        for (const timer of await link.timers()) expect(timer.dueInMs).toBeGreaterThanOrEqual(0);
        link.close("test");
      });

      test("the figures of memory are told by themselves, the same as among all", async (context) => {
        needs(context, "stats");
        const link = await synced();
        const memory = await link.stats("memory");
        const all = await link.stats();
        expect(memory.memTotalBytes).toBe(all.memTotalBytes);
        expect(Object.keys(all)).toEqual(expect.arrayContaining(Object.keys(memory)));
        expect(memory.anonBytes).toBeGreaterThan(0);
        for (const bytes of Object.values(memory)) expect(bytes).toBeGreaterThanOrEqual(0);
        expect(memory.slabBytes).toBeGreaterThan(memory.slabReclaimableBytes ?? Infinity);
        link.close("test");
      });

      test("caches are dropped, or it is said that they cannot be", async (context) => {
        const link = await synced();
        if (subject.missing["drop-caches"] !== undefined) {
          await refuses(link.dropCaches(DEADLINE_MS), "not_supported");
        }
        needs(context, "drop-caches");
        await link.flush(DEADLINE_MS);
        const before = await link.stats("memory");
        await link.dropCaches(DEADLINE_MS);
        const after = await link.stats("memory");
        expect(after.cachedBytes).toBeLessThan(before.cachedBytes);
        link.close("test");
      });

      test("control operations that are sent at once are all answered", async (context) => {
        needs(context, "generation");
        const link = await synced();
        const [info, clock] = await Promise.all([
          link.info(DEADLINE_MS),
          subject.missing.clock === undefined ? link.setClock(DEADLINE_MS) : undefined,
          link.setGeneration(77, "{}"),
          link.runHooks(DEADLINE_MS),
          link.info(DEADLINE_MS).then((later) => expect(later.generation).toBe(77)),
        ]);
        expect(info.version).not.toBe("");
        expect(clock?.boundMs ?? 0).toBeGreaterThanOrEqual(0);
        link.close("test");
      });

      test("identity is taken", async (context) => {
        needs(context, "identity");
        const link = await synced();
        await link.setIdentity({
          hostname: "a1",
          machineId: "0123456789abcdef0123456789abcdef",
          bootId: "00000000-0000-4000-8000-000000000001",
          files: [{ path: "/etc/perdure-test", mode: 0o600, bytes: new Uint8Array([1, 2, 3]) }],
        });
        link.close("test");
      });

      test("a frozen workload stands still and goes on after the thaw", async (context) => {
        needs(context, "freeze");
        const link = await letOut();
        const { process } = await link.exec(shell("echo first; sleep 0.5; echo thawed"));
        await logged(link, process, 6);
        await link.freeze(DEADLINE_MS);
        expect((await link.info(DEADLINE_MS)).frozen).toBe(true);
        await new Promise((resolve) => setTimeout(resolve, 1000));
        const frozen = (await link.processes()).find((view) => view.process === process);
        expect(frozen).toMatchObject({ running: true, logEnd: 6 });
        await link.thaw();
        expect((await link.info(DEADLINE_MS)).frozen).toBe(false);
        expect(text(await collect(link, process, 0))).toBe("first\nthawed\n");
        link.close("test");
      });
    });

    describe("exec and attach", () => {
      test("output of both channels, then the exit code", async () => {
        const link = await letOut();
        const { process, pid } = await link.exec(
          shell("echo out; sleep 0.2; echo err >&2; exit 3"),
        );
        expect(pid).toBeGreaterThan(0);
        const pieces = await collect(link, process, 0);
        expect(text(pieces, "stdout")).toBe("out\n");
        expect(text(pieces, "stderr")).toBe("err\n");
        expect(pieces.at(-1)).toEqual({ type: "exit", exitCode: 3, signal: null, timedOut: false });
        expectNoGap(pieces, 0);
        link.close("test");
      });

      test("argv and environment arrive as they were given", async () => {
        const link = await letOut();
        const { process } = await link.exec({ ...shell(""), argv: ["/bin/echo", "a b", "ü;$x"] });
        expect(text(await collect(link, process, 0))).toBe("a b ü;$x\n");
        link.close("test");
      });

      test("what cannot be started says why", async () => {
        const link = await letOut();
        await refuses(link.exec({ ...shell(""), argv: ["/does/not/exist"] }), "exec_failed");
        await refuses(link.exec(shell("true", { user: "nobody-of-that-name" })), "user_not_found");
        await refuses(link.exec(shell("true", { cwd: "/does/not/exist" })), "path_not_found");
        await refuses(link.exec({ ...shell(""), argv: [] }), "bad_request");
        await refuses(link.exec(shell("true", { env: { "A=B": "1" } })), "bad_request");
        await refuses(link.exec(shell("é".repeat(40_000))), "too_large");
        await refuses(link.exec(shell("ÉPERDURE-RESYNC\n")), "bad_request");
        await link.info(DEADLINE_MS);
        link.close("test");
      });

      test("a process goes on without a reader, and a reader comes back by offset", async () => {
        const first = await letOut();
        const { process } = await first.exec(
          shell("echo one; sleep 0.3; echo two; sleep 0.3; echo three"),
        );
        const seen: OutputPiece[] = [];
        for await (const piece of first.attach(process, 0)) {
          seen.push(piece);
          break;
        }
        first.close("sleep");
        const second = await letOut();
        const from = lengthOf(seen);
        seen.push(...(await collect(second, process, from)));
        expect(text(seen)).toBe("one\ntwo\nthree\n");
        expectNoGap(seen, 0);
        second.close("test");
      });

      test("two readers get the same, and leaving ends only one", async () => {
        const link = await letOut();
        const { process } = await link.exec(shell("echo a; sleep 0.3; echo b"));
        const left = (async () => {
          for await (const piece of link.attach(process, 0)) return piece;
          return undefined;
        })();
        const stayed = collect(link, process, 0);
        expect((await left)?.type).toBe("output");
        expect(text(await stayed)).toBe("a\nb\n");
        link.close("test");
      });

      test("return() while a piece is awaited ends at once", async () => {
        const link = await letOut();
        const { process } = await link.exec(shell("sleep 60"));
        const iterator = link.attach(process, 0)[Symbol.asyncIterator]();
        const pending = iterator.next();
        await link.info(DEADLINE_MS);
        await iterator.return?.();
        expect((await pending).done).toBe(true);
        await link.signal(process, 9, true, DEADLINE_MS);
        link.close("test");
      });

      test("a link that closes interrupts readers, with the next offset, after what was received", async () => {
        const link = await letOut();
        const { process } = await link.exec(shell("echo early; sleep 60"));
        const seen: OutputPiece[] = [];
        const reading = (async () => {
          for await (const piece of link.attach(process, 0)) {
            seen.push(piece);
            link.close("sleep");
          }
        })();
        const error = await refuses(reading, "interrupted");
        expect(text(seen)).toBe("early\n");
        expect(error.details).toMatchObject({ offset: 6, reason: "sleep" });
        const next = await letOut();
        await next.signal(process, 9, true, DEADLINE_MS);
        next.close("test");
      });

      test("megabytes arrive whole and in order under back-pressure", async () => {
        const link = await letOut();
        const bytes = 6 * 1024 * 1024;
        const { process } = await link.exec(
          shell(`sleep 0.3; head -c ${bytes} /dev/zero`, { logBytes: 1024 * 1024 }),
        );
        const pieces: OutputPiece[] = [];
        for await (const piece of link.attach(process, 0)) {
          pieces.push(piece);
          if (pieces.length % 64 === 0) await new Promise((resolve) => setTimeout(resolve, 2));
        }
        expectNoGap(pieces, 0);
        expect(lengthOf(pieces)).toBe(bytes);
        expect(pieces.some((piece) => piece.type === "cut")).toBe(false);
        link.close("test");
      });

      test("output over the limit keeps head and tail and says what was cut", async () => {
        const link = await letOut();
        const bytes = 512 * 1024;
        const script = `head -c ${bytes} /dev/zero; echo last`;
        const { process } = await link.exec(shell(script, { logBytes: 65_536 }));
        await ended(link, process);
        const pieces = await collect(link, process, 0);
        expectNoGap(pieces, 0);
        expect(pieces.some((piece) => piece.type === "cut")).toBe(true);
        expect(pieces[0]?.type).toBe("output");
        expect(text(pieces.slice(-2)).endsWith("last\n")).toBe(true);
        expect(lengthOf(pieces)).toBe(bytes + 5);
        link.close("test");
      });

      test("a reader that does not consume stalls no other stream", async () => {
        const link = await letOut();
        const { process } = await link.exec(shell("head -c 8000000 /dev/zero; sleep 60"));
        const iterator = link.attach(process, 0)[Symbol.asyncIterator]();
        await iterator.next();
        for (let i = 0; i < 3; i++) {
          const other = await link.exec(shell("echo fine"));
          expect(text(await collect(link, other.process, 0))).toBe("fine\n");
          await link.info(DEADLINE_MS);
        }
        await iterator.return?.();
        await link.signal(process, 9, true, DEADLINE_MS);
        link.close("test");
      });

      test("an offset beyond the log is refused", async () => {
        const link = await letOut();
        const { process } = await link.exec(shell("echo x"));
        await ended(link, process);
        await refuses(collect(link, process, 1_000_000), "bad_request");
        link.close("test");
      });

      test("a process that does not exist is not found", async () => {
        const link = await letOut();
        await refuses(collect(link, 999_999, 0), "process_not_found");
        await refuses(link.writeStdin(999_999, new Uint8Array(1), true), "process_not_found");
        await refuses(link.writeStdin(999_999, new Uint8Array(0), false), "process_not_found");
        await refuses(link.signal(999_999, 9, true, DEADLINE_MS), "process_not_found");
        await refuses(link.forget(999_999), "process_not_found");
        link.close("test");
      });

      test("a time-out ends the process and says so", async () => {
        const link = await letOut();
        const { process } = await link.exec(shell("sleep 60", { timeoutMs: 200 }));
        expect((await collect(link, process, 0)).at(-1)).toMatchObject({
          signal: 9,
          timedOut: true,
        });
        link.close("test");
      });
    });

    describe("processes", () => {
      test("running and ended ones are listed with how they ended", async () => {
        const link = await letOut();
        const long = await link.exec(shell("sleep 60"));
        const short = await link.exec(shell("exit 7"));
        await ended(link, short.process);
        const views = await link.processes();
        const running = views.find((view) => view.process === long.process);
        const over = views.find((view) => view.process === short.process);
        expect(running).toMatchObject({
          running: true,
          exit: null,
          pid: long.pid,
          user: subject.user,
        });
        expect(running?.argv).toEqual(["/bin/sh", "-c", "sleep 60"]);
        expect(Math.abs((running?.startedAtMs ?? 0) - Date.now())).toBeLessThan(120_000);
        expect(over).toMatchObject({ running: false, exit: { exitCode: 7, signal: null } });
        await link.signal(long.process, 9, true, DEADLINE_MS);
        link.close("test");
      });

      test("a list that is longer than a frame is whole", async () => {
        const link = await letOut();
        const started: number[] = [];
        for (let i = 0; i < 90; i++) {
          const argv = ["/bin/echo", "x".repeat(1000)];
          started.push((await link.exec({ ...shell(""), argv })).process);
        }
        const listed = (await link.processes()).map((view) => view.process);
        expect(listed).toEqual(expect.arrayContaining(started));
        expect(listed).toEqual([...new Set(listed)].sort((a, b) => a - b));
        link.close("test");
      });

      test("SIGKILL to the tree answers when it is gone", async (context) => {
        needs(context, "kill-tree");
        const link = await letOut();
        const { process } = await link.exec(shell("sleep 60"));
        await link.signal(process, 9, true, DEADLINE_MS);
        const pieces = await collect(link, process, 0);
        expect(pieces.at(-1)).toMatchObject({ type: "exit", exitCode: null, signal: 9 });
        link.close("test");
      });

      test("only an ended process is forgotten", async () => {
        const link = await letOut();
        const { process } = await link.exec(shell("sleep 60"));
        await refuses(link.forget(process), "process_running");
        await link.signal(process, 9, true, DEADLINE_MS);
        await ended(link, process);
        await link.forget(process);
        await refuses(collect(link, process, 0), "process_not_found");
        link.close("test");
      });
    });

    describe("stdin", () => {
      test("writes arrive in order and the end ends the program", async () => {
        const link = await letOut();
        const { process } = await link.exec({ ...shell(""), argv: ["/bin/cat"], stdin: true });
        const output = collect(link, process, 0);
        await link.writeStdin(process, Buffer.from("one "), false);
        await Promise.all([
          link.writeStdin(process, Buffer.from("two "), false),
          link.writeStdin(process, Buffer.from("three"), true),
        ]);
        expect(text(await output)).toBe("one two three");
        link.close("test");
      });

      test("more than any buffer goes through as the process reads", async () => {
        const link = await letOut();
        const bytes = crypto.getRandomValues(new Uint8Array(65_536));
        const whole = Buffer.concat(Array.from({ length: 32 }, () => bytes));
        const { process } = await link.exec({ ...shell(""), argv: ["/bin/cat"], stdin: true });
        const output = collect(link, process, 0);
        await link.writeStdin(process, whole, true);
        expect(bytesOf(await output).equals(whole)).toBe(true);
        link.close("test");
      });

      test("writes at the same time do not mix", async () => {
        const link = await letOut();
        const { process } = await link.exec({ ...shell(""), argv: ["/bin/cat"], stdin: true });
        const output = collect(link, process, 0);
        const parts = [1, 2, 3].map((byte) => Buffer.alloc(200_000, byte));
        await Promise.all(parts.map((part, i) => link.writeStdin(process, part, i === 2)));
        expect(bytesOf(await output).equals(Buffer.concat(parts))).toBe(true);
        link.close("test");
      });

      test("many inputs that are left open leave room for others", async () => {
        const link = await letOut();
        const open: number[] = [];
        for (let i = 0; i < 70; i++) {
          const { process } = await link.exec({ ...shell(""), argv: ["/bin/cat"], stdin: true });
          await link.writeStdin(process, Buffer.from(`${i} `), false);
          open.push(process);
        }
        for (const [i, process] of open.entries()) {
          await link.writeStdin(process, Buffer.from("end"), true);
          expect(text(await collect(link, process, 0))).toBe(`${i} end`);
        }
        link.close("test");
      });

      test("input that nobody reads any more is refused", async () => {
        const link = await letOut();
        const { process } = await link.exec(shell("sleep 0.1", { stdin: true }));
        await link.writeStdin(process, Buffer.from("x"), false);
        await ended(link, process);
        const error = await rejection(link.writeStdin(process, Buffer.alloc(4_000_000), false));
        expect(["stdin_closed", "process_ended"]).toContain(error.code);
        link.close("test");
      });

      test("a process without stdin refuses it", async () => {
        const link = await letOut();
        const { process } = await link.exec(shell("sleep 60"));
        await refuses(link.writeStdin(process, Buffer.from("x"), false), "stdin_closed");
        await link.signal(process, 9, true, DEADLINE_MS);
        link.close("test");
      });
    });

    describe("files", () => {
      test.each([0, 1, 65_536, 65_537, 5 * 1024 * 1024])(
        "%i bytes written are read",
        async (size) => {
          const link = await letOut();
          const path = `${subject.folder}/size-${size}`;
          const bytes = pattern(size);
          await link.writeFile(
            path,
            { user: subject.user, mode: 0o640, size },
            pieces(bytes, 40_000),
          );
          const { facts, bytes: read } = await link.readFile(path, subject.user);
          expect(facts).toMatchObject({ kind: "file", size });
          expect(facts.mode & 0o777).toBe(0o640);
          expect(Math.abs(facts.mtimeMs - Date.now())).toBeLessThan(120_000);
          expect(Buffer.concat(await all(read)).equals(bytes)).toBe(true);
          expect(await link.stat(path, subject.user)).toEqual(facts);
          link.close("test");
        },
      );

      test("content that looks like the link's own magic survives", async () => {
        const link = await letOut();
        const magic = Buffer.from("\x89PERDURE-RESYNC\n", "latin1");
        const bytes = Buffer.concat([
          magic,
          Buffer.alloc(70_000),
          magic,
          magic,
          magic.subarray(0, 15),
        ]);
        const path = `${subject.folder}/magic`;
        const options = { user: subject.user, mode: 0o600, size: bytes.length };
        await link.writeFile(path, options, pieces(bytes, bytes.length));
        const { bytes: read } = await link.readFile(path, subject.user);
        expect(Buffer.concat(await all(read)).equals(bytes)).toBe(true);
        link.close("test");
      });

      test("too short, too long or broken off leaves the target as it was", async () => {
        const link = await letOut();
        const path = `${subject.folder}/kept`;
        await write(link, "kept", "before");
        const options = { user: subject.user, mode: 0o600, size: 100_000 };
        await refuses(
          link.writeFile(path, options, pieces(pattern(99_999), 9_999)),
          "size_mismatch",
        );
        await refuses(
          link.writeFile(path, options, pieces(pattern(100_001), 9_999)),
          "size_mismatch",
        );
        const broken = link.writeFile(path, options, failing(pattern(50_000)));
        await expect(broken).rejects.toThrow("The source broke");
        const { bytes } = await link.readFile(path, subject.user);
        expect(Buffer.concat(await all(bytes)).toString()).toBe("before");
        link.close("test");
      });

      test("what is wrong with a path is said", async () => {
        const link = await letOut();
        const { user, folder } = subject;
        await refuses(link.stat("relative", user), "bad_request");
        await refuses(link.stat(`${folder}/../x`, user), "bad_request");
        await refuses(link.stat(`/${"x".repeat(5000)}`, user), "bad_request");
        await refuses(link.stat(`${folder}/none`, user), "path_not_found");
        await refuses(link.readFile(`${folder}/none`, user), "path_not_found");
        await refuses(link.readFile(folder, user), "path_is_directory");
        await refuses(write(link, "none/f", "x"), "path_not_found");
        await refuses(link.stat(folder, "nobody-of-that-name"), "user_not_found");
        expect((await link.stat(folder, user)).kind).toBe("directory");
        link.close("test");
      });

      test("a reader that leaves in the middle leaves the link whole", async () => {
        const link = await letOut();
        const path = `${subject.folder}/large`;
        const size = 3_000_000;
        const options = { user: subject.user, mode: 0o600, size };
        await link.writeFile(path, options, pieces(pattern(size), 65_536));
        for (let i = 0; i < 5; i++) {
          const { bytes } = await link.readFile(path, subject.user);
          for await (const piece of bytes) if (piece.length > 0) break;
        }
        await link.info(DEADLINE_MS);
        link.close("test");
      });
    });

    function write(link: GuestLink, file: string, content: string): Promise<void> {
      const bytes = Buffer.from(content);
      const options = { user: subject.user, mode: 0o600, size: bytes.length };
      return link.writeFile(`${subject.folder}/${file}`, options, pieces(bytes, 1000));
    }
  });
}

async function collect(link: GuestLink, process: number, offset: number): Promise<OutputPiece[]> {
  const pieces: OutputPiece[] = [];
  for await (const piece of link.attach(process, offset)) pieces.push(piece);
  return pieces;
}

async function ended(link: GuestLink, process: number): Promise<void> {
  await expect
    .poll(async () => (await link.processes()).find((view) => view.process === process)?.running, {
      timeout: DEADLINE_MS,
    })
    .toBe(false);
}

async function logged(link: GuestLink, process: number, bytes: number): Promise<void> {
  await expect
    .poll(async () => (await link.processes()).find((view) => view.process === process)?.logEnd, {
      timeout: DEADLINE_MS,
    })
    .toBe(bytes);
}

async function rejection(work: Promise<unknown>): Promise<PerdureError> {
  const outcome = await work.then(
    () => null,
    (error: unknown) => error,
  );
  if (!(outcome instanceof PerdureError)) throw new Error(`No typed error: ${String(outcome)}`);
  return outcome;
}

async function refuses(work: Promise<unknown>, code: ErrorCode): Promise<PerdureError> {
  const error = await rejection(work);
  expect(`${error.code}: ${error.message}`).toContain(`${code}: `);
  return error;
}

/** Every byte is either there or said to be cut, once, in order; the exit comes last. */
function expectNoGap(pieces: readonly OutputPiece[], from: number): void {
  let at = from;
  for (const piece of pieces.filter((each) => each.type !== "exit")) {
    expect(piece.type === "cut" ? piece.from : piece.offset).toBe(at);
    at = piece.type === "cut" ? piece.to : at + piece.bytes.length;
  }
  expect(pieces.findIndex((piece) => piece.type === "exit")).toBe(pieces.length - 1);
}

function lengthOf(pieces: readonly OutputPiece[]): number {
  let bytes = 0;
  for (const piece of pieces) {
    if (piece.type === "output") bytes += piece.bytes.length;
    if (piece.type === "cut") bytes += piece.to - piece.from;
  }
  return bytes;
}

function bytesOf(pieces: readonly OutputPiece[], stream?: "stdout" | "stderr"): Buffer {
  const bytes: Uint8Array[] = [];
  for (const piece of pieces) {
    if (piece.type === "output" && (stream ?? piece.stream) === piece.stream)
      bytes.push(piece.bytes);
  }
  return Buffer.concat(bytes);
}

function text(pieces: readonly OutputPiece[], stream?: "stdout" | "stderr"): string {
  return bytesOf(pieces, stream).toString();
}

function pattern(bytes: number): Buffer {
  const whole = Buffer.alloc(bytes);
  for (let i = 0; i < bytes; i++) whole[i] = (i * 7 + (i >> 8)) & 255;
  return whole;
}

async function* pieces(whole: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < whole.length; at += size) {
    yield whole.subarray(at, at + size);
    await Promise.resolve();
  }
}

async function* failing(whole: Uint8Array): AsyncGenerator<Uint8Array> {
  yield* pieces(whole, 10_000);
  throw new Error("The source broke");
}

async function all(source: AsyncIterable<Uint8Array>): Promise<Uint8Array[]> {
  const pieces: Uint8Array[] = [];
  for await (const piece of source) pieces.push(piece);
  return pieces;
}
