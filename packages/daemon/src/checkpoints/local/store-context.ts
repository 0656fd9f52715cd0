/** What every operation of the local store works with. */
import type { AgentId, Digest } from "@perdure/protocol";
import type { Clock } from "../../core/ports/clock.ts";
import type { KeyRing } from "../key-ring.ts";
import { VerifiedFiles } from "../verified-files.ts";
import type { WorkPool } from "../work/pool.ts";
import { AgentFolder } from "./agent-folder.ts";
import type { BackgroundChecks } from "./background-check.ts";

/** Path of the memory base of a template with this digest, verified; null where there is none. */
export type FindTemplateBase = (tenant: string, digest: Digest) => Promise<string | null>;

export class StoreContext {
  readonly home: string;
  readonly keyRing: KeyRing;
  readonly clock: Clock;
  readonly pool: WorkPool;
  readonly checks: BackgroundChecks;
  readonly findTemplateBase: FindTemplateBase;
  /**
   * Packs in which damage was met since the start. The next checkpoint does not refer to them: every
   * page that differs from the base is in its capture, so a living agent heals its own store.
   */
  readonly damagedPacks = new Set<string>();
  readonly #hostBootId: string;
  /**
   * Weakly: one that somebody uses is the only one of its agent; of an agent that sleeps nothing is held, and
   * its file is read again when it is needed.
   */
  readonly #verified = new Map<AgentId, WeakRef<VerifiedFiles>>();
  readonly #gone = new FinalizationRegistry<AgentId>((agent) => {
    if (this.#verified.get(agent)?.deref() === undefined) this.#verified.delete(agent);
  });

  constructor(options: {
    readonly home: string;
    readonly keyRing: KeyRing;
    readonly clock: Clock;
    readonly pool: WorkPool;
    readonly checks: BackgroundChecks;
    readonly findTemplateBase: FindTemplateBase;
    readonly hostBootId: string;
  }) {
    this.home = options.home;
    this.keyRing = options.keyRing;
    this.clock = options.clock;
    this.pool = options.pool;
    this.checks = options.checks;
    this.findTemplateBase = options.findTemplateBase;
    this.#hostBootId = options.hostBootId;
  }

  folder(agent: AgentId): AgentFolder {
    return new AgentFolder(this.home, agent);
  }

  verified(agent: AgentId): VerifiedFiles {
    const known = this.#verified.get(agent)?.deref();
    if (known !== undefined) return known;
    const files = new VerifiedFiles(this.folder(agent).verified, this.#hostBootId, (...file) =>
      this.pool.digestFile(...file),
    );
    this.#verified.set(agent, new WeakRef(files));
    this.#gone.register(files, agent);
    return files;
  }

  forgetVerified(agent: AgentId): void {
    this.#verified.delete(agent);
  }
}
