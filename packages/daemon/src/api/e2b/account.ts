/**
 * Accounts inside a sandbox, as its /etc/passwd and /etc/group say: homes for paths that begin there, and names for
 * owners. Kept for a short while; read again where somebody is looked for who is not in it.
 */
import { PerdureError } from "@perdure/protocol";
import type { Commands, Target } from "../../core/command.ts";
import type { Clock } from "../../core/ports/clock.ts";

export interface Account {
  readonly name: string;
  readonly uid: number;
  readonly home: string;
}

interface Known {
  readonly accounts: readonly Account[];
  readonly groups: ReadonlyMap<number, string>;
  readonly readMs: number;
}

const KEPT_MS = 2_000;
const AGENTS_MAX = 1_000;
const FILE_BYTES_MAX = 1024 * 1024;

type Reading = Pick<Commands, "readFile" | "userOf">;

export class Accounts {
  readonly #commands: Reading;
  readonly #clock: Pick<Clock, "monotonicMs">;
  readonly #known = new Map<string, Known>();

  constructor(commands: Reading, clock: Pick<Clock, "monotonicMs">) {
    this.#commands = commands;
    this.#clock = clock;
  }

  /** `wished`, a name or a uid, perhaps with a group; null: who programs run as. @throws `user_not_found` */
  async account(target: Target, wished: string | null): Promise<Account> {
    const user = wished ?? (await this.#commands.userOf(target));
    const [who = ""] = user.split(":", 1);
    const isIt = ({ name, uid }: Account): boolean => name === who || String(uid) === who;
    const found =
      (await this.#read(target, KEPT_MS)).accounts.find(isIt) ??
      (await this.#read(target, 0)).accounts.find(isIt);
    if (found !== undefined) return found;
    if (/^[0-9]+$/.test(who)) return { name: who, uid: Number(who), home: "/" };
    throw new PerdureError("user_not_found", `The sandbox has no user "${who.slice(0, 64)}"`);
  }

  /** Numbers where nobody has the name. */
  async names(target: Target, uid: number, gid: number): Promise<{ owner: string; group: string }> {
    const find = ({ accounts, groups }: Known) => ({
      owner: accounts.find((account) => account.uid === uid)?.name,
      group: groups.get(gid),
    });
    let { owner, group } = find(await this.#read(target, KEPT_MS));
    if (owner === undefined || group === undefined) {
      ({ owner, group } = find(await this.#read(target, KEPT_MS / 10)));
    }
    return { owner: owner ?? String(uid), group: group ?? String(gid) };
  }

  async #read(target: Target, ageMs: number): Promise<Known> {
    const nowMs = this.#clock.monotonicMs();
    const known = this.#known.get(target.agent);
    if (known !== undefined && nowMs - known.readMs < ageMs) return known;
    const [passwd, group] = await Promise.all([
      this.#text(target, "/etc/passwd"),
      this.#text(target, "/etc/group"),
    ]);
    const read = { accounts: accountsOf(passwd), groups: groupsOf(group), readMs: nowMs };
    this.#known.delete(target.agent);
    this.#known.set(target.agent, read);
    for (const oldest of this.#known.keys()) {
      if (this.#known.size <= AGENTS_MAX) break;
      this.#known.delete(oldest);
    }
    return read;
  }

  /** Empty where there is none, or nobody could read it. */
  async #text(target: Target, path: string): Promise<string> {
    const wanted = { ...target, path, user: "0", range: { offset: 0, length: FILE_BYTES_MAX } };
    try {
      const { bytes } = await this.#commands.readFile(wanted);
      return Buffer.concat(await Array.fromAsync(bytes)).toString();
    } catch (error) {
      if (error instanceof PerdureError && error.code.startsWith("path_")) return "";
      throw error;
    }
  }
}

export function accountsOf(passwd: string): Account[] {
  return passwd.split("\n").flatMap((line) => {
    const [name = "", , uid = "", , , home = ""] = line.split(":");
    if (name === "" || !/^[0-9]{1,10}$/.test(uid)) return [];
    return [{ name, uid: Number(uid), home: home.startsWith("/") ? home : "/" }];
  });
}

export function groupsOf(group: string): Map<number, string> {
  return new Map(
    group.split("\n").flatMap((line): [number, string][] => {
      const [name = "", , gid = ""] = line.split(":");
      return name === "" || !/^[0-9]{1,10}$/.test(gid) ? [] : [[Number(gid), name]];
    }),
  );
}
