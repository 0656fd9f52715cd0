/**
 * Keeps requests that come with an idempotency key, so that a client that does not know how its call
 * ended may send it again: it is carried out once, and its answer is given again.
 *
 * - The key is durable before the work begins and the answer before it is sent; a repeat of a request
 *   whose answer is not known (the daemon died in between) is `idempotency_unfinished`.
 * - A request that is idempotent itself is carried out again instead, and waits for no disk.
 * - A repeat that comes while the first is under way waits for it.
 * - An error whose `retry` is `safe` is not kept: nothing was done, and the repeat shall do it.
 * - On a full disk keys are held in memory only: agents come first, and `remove` must work.
 *
 * A key means nothing to another principal. Another request under a key that is kept is
 * `idempotency_conflict`, with status 422 as draft-ietf-httpapi-idempotency-key-header has it: 409 says
 * there that the first is still under way, which passes, and this never does.
 */
import { apiLimits, PerdureError } from "@perdure/protocol";
import type { KeptAnswer } from "../core/kept-request.ts";
import type { Clock } from "../core/ports/clock.ts";
import type { Log } from "../core/ports/log.ts";
import type { RequestChange, StateStore } from "../core/ports/state-store.ts";
import { toPerdureError } from "./error-answer.ts";

export interface KeyedRequest {
  readonly principal: string;
  readonly key: string;
  /** Of what is asked. A body that comes as a stream is read to its end for it. */
  readonly digest: () => Promise<string>;
  /** The same where nothing need be read: another request that is under way is refused at once. */
  readonly digestNow: string | null;
  /** Whether it may be carried out again where it is not known how it ended. */
  readonly again: boolean;
  /** Not where nothing is done then, and a streamed body may not have been read. */
  readonly keepsErrors: boolean;
  /** Whether the answer may be written down. Who waits for it gets it in any case. */
  readonly keepsAnswer: boolean;
}

/** What `work` answered; null where it wrote the answer itself and none can be given again. */
type Answer = KeptAnswer | null;

interface Outcome {
  readonly digest: string;
  readonly answer: Answer;
}

interface UnderWay {
  readonly digestNow: string | null;
  /** Null: it came to nothing, and is to be tried again. Never rejects. */
  readonly ended: Promise<Outcome | null>;
}

export interface RequestKeeperOptions {
  readonly state: Pick<StateStore, "commit" | "request">;
  readonly clock: Pick<Clock, "nowMs">;
  readonly log: Log;
}

/** Requests kept from one collection to the next. */
const COLLECT_EVERY = 256;
/** Requests held in memory while the disk is full. */
const IN_MEMORY_MAX = 1000;

export class RequestKeeper {
  readonly #options: RequestKeeperOptions;
  readonly #underWay = new Map<string, UnderWay>();
  readonly #inMemory = new Map<string, Outcome>();
  #kept = 0;

  constructor(options: RequestKeeperOptions) {
    this.#options = options;
  }

  /**
   * Does `work` where the request is new, else gives the answer that is kept.
   *
   * @throws what `work` throws; `idempotency_conflict`, `idempotency_unfinished`
   */
  async run(
    request: KeyedRequest,
    work: () => Promise<Answer>,
  ): Promise<{ readonly answer: Answer; readonly replayed: boolean }> {
    const slot = `${request.principal} ${request.key}`;
    for (;;) {
      const other = this.#underWay.get(slot);
      if (other === undefined) return this.#first(slot, request, work);
      const { digestNow } = request;
      if (digestNow !== null && other.digestNow !== null && digestNow !== other.digestNow) {
        throw conflict(request.key);
      }
      const outcome = await other.ended;
      if (outcome !== null) return replay(request, outcome);
    }
  }

  /** Resolves when nothing is under way. */
  async settled(): Promise<void> {
    while (this.#underWay.size > 0) {
      await Promise.all([...this.#underWay.values()].map(({ ended }) => ended));
    }
  }

  async #first(slot: string, request: KeyedRequest, work: () => Promise<Answer>) {
    const ended = Promise.withResolvers<Outcome | null>();
    this.#underWay.set(slot, { digestNow: request.digestNow, ended: ended.promise });
    let outcome: Outcome | null = null;
    try {
      const known = this.#inMemory.get(slot) ?? (await this.#known(request));
      if (known !== null) return await replay(request, (outcome = known));
      const isTaken = request.again || (await this.#take(request));
      const { answer, raised, error } = await attempt(work);
      const isKept = error === null || (request.keepsErrors && error.retry !== "safe");
      if (isKept) outcome = { digest: await request.digest(), answer };
      const stored = this.#store(slot, request, isTaken, outcome);
      if (!request.again) await stored;
      if (error !== null) throw raised;
      return { answer, replayed: false };
    } finally {
      this.#underWay.delete(slot);
      ended.resolve(outcome);
    }
  }

  /** What is kept under the key; null where the request is to be carried out. */
  async #known(request: KeyedRequest): Promise<Outcome | null> {
    const { principal, key, again } = request;
    const kept = await this.#options.state.request(principal, key);
    if (kept === null || kept.atMs < this.#sinceMs()) return null;
    const { digest, answer } = kept;
    return answer === null && again && digest === (await request.digest())
      ? null
      : { digest, answer };
  }

  /** Takes the key for good. Returns false where the disk is full. */
  async #take(request: KeyedRequest): Promise<boolean> {
    const { principal, key } = request;
    const digest = await request.digest();
    return this.#commit(this.#insertion({ principal, key, digest, answer: null }));
  }

  /** Writes down how the request ended; never rejects. */
  async #store(
    slot: string,
    request: KeyedRequest,
    isTaken: boolean,
    outcome: Outcome | null,
  ): Promise<void> {
    const { principal, key, again } = request;
    try {
      if (outcome === null) {
        if (!again && isTaken) await this.#commit({ kind: "release-request", principal, key });
        return;
      }
      const { answer, digest } = outcome;
      if (answer === null || !request.keepsAnswer || isTooLong(answer)) return;
      const change: RequestChange = again
        ? this.#insertion({ principal, key, digest, answer })
        : { kind: "answer-request", principal, key, answer };
      if (!isTaken || !(await this.#commit(change))) this.#holdInMemory(slot, outcome);
      if (this.#kept++ % COLLECT_EVERY === 0) await this.#collect();
    } catch (error) {
      const { message } = PerdureError.from(error);
      this.#options.log("warn", "How a request ended could not be kept for its key", { message });
    }
  }

  #insertion(request: { principal: string; key: string; digest: string; answer: Answer }) {
    const kept = { ...request, atMs: this.#options.clock.nowMs() };
    return { kind: "insert-request", request: kept, sinceMs: this.#sinceMs() } as const;
  }

  #sinceMs(): number {
    return this.#options.clock.nowMs() - apiLimits.idempotencyKeptMs;
  }

  /** False where the disk is full. */
  async #commit(change: RequestChange): Promise<boolean> {
    try {
      await this.#options.state.commit([change]);
      return true;
    } catch (error) {
      if (PerdureError.from(error).code === "disk_full") return false;
      throw error;
    }
  }

  #holdInMemory(slot: string, outcome: Outcome): void {
    this.#inMemory.set(slot, outcome);
    for (const oldest of this.#inMemory.keys()) {
      if (this.#inMemory.size <= IN_MEMORY_MAX) break;
      this.#inMemory.delete(oldest);
    }
  }

  async #collect(): Promise<void> {
    const { idempotencyOfCallerMax, idempotencyMax, idempotencyBytesMax } = apiLimits;
    await this.#commit({
      kind: "collect-requests",
      bounds: {
        sinceMs: this.#sinceMs(),
        ofPrincipalMax: idempotencyOfCallerMax,
        countMax: idempotencyMax,
        bytesMax: idempotencyBytesMax,
      },
    });
  }
}

async function replay(request: KeyedRequest, { digest, answer }: Outcome) {
  if (digest !== (await request.digest())) throw conflict(request.key);
  if (answer !== null) return { answer, replayed: true };
  throw new PerdureError(
    "idempotency_unfinished",
    `Cannot answer the request with Idempotency-Key "${request.key}" again: it was begun, and its answer is not kept`,
    {
      hint: "Look at what it should have changed; where that was not done, send it with a new key.",
    },
  );
}

/** `raised` is what was thrown, `error` what that is to the caller. */
async function attempt(work: () => Promise<Answer>) {
  try {
    return { answer: await work(), raised: null, error: null };
  } catch (raised) {
    const error = toPerdureError(raised);
    return { answer: { status: error.status, body: JSON.stringify(error) }, raised, error };
  }
}

function isTooLong({ body }: KeptAnswer): boolean {
  return body !== null && Buffer.byteLength(body) > apiLimits.idempotencyAnswerBytesMax;
}

function conflict(key: string): PerdureError {
  return new PerdureError(
    "idempotency_conflict",
    `Cannot take the request: Idempotency-Key "${key}" was sent with another one`,
    { hint: "Send each request with a new key; repeat a key only with the very same request." },
  );
}
