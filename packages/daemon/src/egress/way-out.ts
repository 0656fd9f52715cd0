/**
 * The way out of one agent, as long as one link holds it open: every connection that a program inside makes is
 * decided on, made from here, carried, and told.
 *
 * - I1 Names are resolved here, once for each connection, and the connection is made to the very address that
 *   was decided on: a name that leads elsewhere a moment later changes nothing.
 * - I2 Nothing is connected, and of what needs no look nothing is read, before it is allowed.
 * - I3 What a new policy denies is broken off at once; what waits for its first bytes is decided by the new one.
 * - I4 Each connection is told once, when it is over: refused, failed or carried. What is carried is told before its
 *   first byte goes out, too: where that fails it is not made.
 */
import { connect as connectTcp, type Socket } from "node:net";
import { breakOff, type EgressPolicy } from "@perdure/protocol";
import type { Clock } from "../core/ports/clock.ts";
import type { ConnectionEnd, ConnectionStart, ConnectionTeller } from "../core/ports/egress.ts";
import { carry, type Carried, type InsideConnection } from "./carry.ts";
import { decideByName, decideEgress, type EgressDecision } from "./decision.ts";
import { methodOf } from "./first-bytes.ts";
import { wayOutLimits } from "./limit.ts";
import { Rate } from "./rate.ts";
import { RequestGuard, RequestRefused } from "./request-guard.ts";
import { Seats } from "./seats.ts";

/** A connection that a program inside wants; it waits there until it is taken. */
export interface Wanted {
  readonly name: string | null;
  /** IPv4, as the program has it: of a name the one that stands for it inside. */
  readonly address: string;
  readonly port: number;
  /** Takes it. @throws `connection_reset` where the program has left */
  take(): Promise<InsideConnection>;
}

export interface WayOutOptions {
  readonly policy: EgressPolicy;
  readonly clock: Clock;
  /** Whether the daemon itself listens there: never reached, whatever a rule says. */
  readonly isOwn: (address: string, port: number) => boolean;
  readonly teller: ConnectionTeller;
  /** All addresses of a name. */
  readonly resolve: (name: string) => Promise<readonly string[]>;
}

/** One connection under way. */
interface UnderWay {
  readonly wanted: Wanted;
  address: string | null;
  method: string | null | undefined;
  rule: number | null;
  readonly atMs: number;
  readonly startMs: number;
  /** Ends it, with why. */
  breakOff: (why: string) => void;
  denied: string | null;
  /** Of one that was let pass by its method. */
  guard: RequestGuard | null;
  /** Tells its end. */
  ended: (end: ConnectionEnd) => Promise<void>;
}

/** Of a connection that is open when a policy asks for methods. */
const NOT_LOOKED_AT = "A rule asks for its method, which was not looked at";

export class WayOut {
  readonly #options: WayOutOptions;
  readonly #rate: Rate;
  readonly #seats: Seats;
  readonly #underWay = new Set<UnderWay>();
  #policy: EgressPolicy;

  constructor(options: WayOutOptions) {
    this.#options = options;
    this.#policy = options.policy;
    this.#seats = new Seats(options.clock, wayOutLimits.openMax, wayOutLimits.waitMs);
    this.#rate = new Rate(options.clock, wayOutLimits.newPerSecond, wayOutLimits.newAtOnce);
  }

  /** Connections that are wanted, being made or carried. */
  get open(): number {
    return this.#underWay.size;
  }

  /** From now on this policy holds, for those that are open as well. */
  apply(policy: EgressPolicy): void {
    this.#policy = policy;
    for (const one of this.#underWay) {
      if (one.address === null) continue;
      const { verdict, why } = this.#decide(one, one.address);
      if (verdict !== "allow") one.breakOff(verdict === "look" ? NOT_LOOKED_AT : why);
    }
  }

  /** Serves one connection from its wish to its end. Never rejects. */
  async serve(wanted: Wanted): Promise<void> {
    const { clock, teller } = this.#options;
    const one: UnderWay = {
      wanted,
      address: null,
      method: undefined,
      rule: null,
      atMs: clock.nowMs(),
      startMs: clock.monotonicMs(),
      breakOff: () => undefined,
      denied: null,
      guard: null,
      ended: (end) => teller.refused(end),
    };
    this.#underWay.add(one);
    try {
      const carried = await this.#seated(one);
      const outcome = one.denied === null ? "carried" : "denied";
      await this.#tell(one, outcome, one.denied ?? carried.broken, carried);
    } catch (error) {
      const outcome = error instanceof Denied ? "denied" : "failed";
      await this.#tell(one, outcome, one.denied ?? messageOf(error));
    } finally {
      this.#underWay.delete(one);
    }
  }

  #tell(
    one: UnderWay,
    outcome: ConnectionEnd["outcome"],
    why: string | null,
    { outBytes, inBytes }: Pick<Carried, "outBytes" | "inBytes"> = { outBytes: 0, inBytes: 0 },
  ): Promise<void> {
    const ms = Math.round(this.#options.clock.monotonicMs() - one.startMs);
    const unmediated = outBytes > 0 && one.guard?.onlyRead !== true;
    return one.ended({ ...startOf(one, unmediated), outcome, outBytes, inBytes, ms, why });
  }

  /** @throws Denied, or why it failed; the program saw a reset then */
  async #seated(one: UnderWay): Promise<Carried> {
    const why = !this.#rate.take()
      ? "Too many were made within a moment"
      : !(await this.#seats.enter())
        ? "Too many are open"
        : null;
    if (why !== null) {
      await refuse(one.wanted, null);
      throw new Denied(why);
    }
    try {
      return await this.#serve(one);
    } finally {
      this.#seats.leave();
    }
  }

  async #serve(one: UnderWay): Promise<Carried> {
    const { wanted } = one;
    let inside: InsideConnection | null = null;
    let outside: Socket | null = null;
    try {
      const candidates = await this.#candidates(one);
      const first: Uint8Array[] = [];
      if (candidates.some((address) => this.#decide(one, address).verdict === "look")) {
        inside = await wanted.take();
        one.method = await this.#look(inside, first);
      }
      outside = await this.#connect(one, candidates);
      inside ??= await wanted.take();
      one.ended = await this.#options.teller.begun(startOf(one, true));
      const [socket, taken] = [outside, inside];
      one.breakOff = (why) => {
        one.denied ??= why;
        taken.close();
        breakOff(socket);
      };
      // The policy may have changed since it was decided on.
      this.#allowed(one, one.address ?? "");
      const passed = (): void => this.#options.teller.passed();
      if (typeof one.method !== "string") return await carry(inside, outside, first, passed);
      const guard = new RequestGuard((method) => this.#lets(one, method));
      one.guard = guard;
      return await carry(inside, outside, first, passed, (bytes) => looked(one, guard, bytes));
    } catch (error) {
      if (outside !== null) breakOff(outside);
      await refuse(wanted, inside);
      throw error;
    }
  }

  /** Where it may lead. @throws Denied where nowhere */
  async #candidates(one: UnderWay): Promise<readonly string[]> {
    const { name, address, port } = one.wanted;
    const early = name === null ? null : decideByName(this.#policy, { name, port });
    if (early !== null) {
      one.rule = early.rule;
      throw new Denied(early.why);
    }
    const addresses = name === null ? [address] : await this.#options.resolve(name);
    if (addresses.length === 0) throw new Error(`No address of ${String(name)} is known`);
    one.address = addresses[0] ?? null;
    const decisions = addresses.map((each) => ({ each, ...this.#decide(one, each) }));
    const open = decisions.filter(({ verdict }) => verdict !== "deny");
    if (open.length > 0) return open.map(({ each }) => each);
    one.rule = decisions[0]?.rule ?? null;
    throw new Denied(decisions[0]?.why ?? "");
  }

  #decide(one: UnderWay, address: string): EgressDecision {
    const { name, port } = one.wanted;
    if (this.#options.isOwn(address, port)) {
      return { verdict: "deny", rule: null, why: "It leads to the daemon itself" };
    }
    return decideEgress(this.#policy, { name, address, port, method: one.method });
  }

  /** Whether the policy of now lets a further request pass. */
  #lets(one: UnderWay, method: string): boolean {
    const { name, port } = one.wanted;
    const wanted = { name, address: one.address ?? "", port, method };
    return decideEgress(this.#policy, wanted).verdict === "allow";
  }

  /** @throws Denied */
  #allowed(one: UnderWay, address: string): void {
    const { verdict, rule, why } = this.#decide(one, address);
    one.rule = rule;
    if (verdict !== "allow") throw new Denied(verdict === "look" ? NOT_LOOKED_AT : why);
  }

  /** The method of what a program says first; null where it says something else, or nothing for a while. */
  async #look(inside: InsideConnection, first: Uint8Array[]): Promise<string | null> {
    const late = new AbortController();
    const silence = this.#options.clock
      .wait(wayOutLimits.firstBytesMs, late.signal)
      .then(() => "silent" as const);
    silence.catch(() => undefined);
    try {
      for (;;) {
        const read = inside.read();
        read.catch(() => undefined);
        const bytes = await Promise.race([read, silence]);
        if (bytes === "silent") throw new Denied("It said nothing that could be looked at");
        if (bytes === null) return null;
        first.push(bytes);
        const method = methodOf(Buffer.concat(first));
        if (method === "") throw new Denied("It begins as no request does");
        if (method !== undefined) return method;
      }
    } finally {
      late.abort();
    }
  }

  /** To the first address that is allowed and answers. @throws Denied, or why the last one did not answer */
  async #connect(one: UnderWay, candidates: readonly string[]): Promise<Socket> {
    let why: unknown = null;
    for (const address of candidates) {
      one.address = address;
      try {
        this.#allowed(one, address);
        return await connected(address, one.wanted.port);
      } catch (error) {
        why = error;
      }
    }
    throw why;
  }
}

function startOf(one: UnderWay, unmediated: boolean): ConnectionStart {
  const { atMs, address, method = null, rule, wanted } = one;
  return { atMs, name: wanted.name, address, port: wanted.port, method, rule, unmediated };
}

/** What of the bytes may go on. @throws RequestRefused, and it counts as denied */
function looked(one: UnderWay, guard: RequestGuard, bytes: Uint8Array): Uint8Array {
  try {
    return guard.push(bytes);
  } catch (error) {
    if (error instanceof RequestRefused) one.denied ??= error.message;
    throw error;
  }
}

class Denied extends Error {
  override readonly name = "Denied";
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The program sees a reset. */
async function refuse(wanted: Wanted, taken: InsideConnection | null): Promise<void> {
  try {
    (taken ?? (await wanted.take())).close();
  } catch {
    // It has left already.
  }
}

function connected(address: string, port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connectTcp({ host: address, port, allowHalfOpen: true, noDelay: true });
    socket.setKeepAlive(true, wayOutLimits.keepAliveMs);
    const late = setTimeout(() => {
      fail(new Error(`${address} did not answer within ${wayOutLimits.connectMs} ms`));
    }, wayOutLimits.connectMs);
    const fail = (error: Error): void => {
      clearTimeout(late);
      socket.destroy();
      reject(error);
    };
    socket.once("error", fail);
    socket.once("connect", () => {
      clearTimeout(late);
      socket.off("error", fail);
      resolve(socket);
    });
  });
}
