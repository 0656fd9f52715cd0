/** What stands at a path, as E2B's clients are told. A link is what it leads to, and where that is, is said. */
import { posix } from "node:path";
import { create } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import type { Commands, Target } from "../../core/command.ts";
import type { FileFacts } from "../../core/ports/guest-link.ts";
import type { Account, Accounts } from "./account.ts";
import { asUserOrRoot, isRefused, realPaths } from "./inside-path.ts";
import { metadataOf } from "./metadata.ts";
import { EntryInfoSchema, FileType } from "./schema/filesystem.mjs";
import type { EntryInfo } from "./schema/filesystem.mjs";

const types = {
  file: FileType.FILE,
  directory: FileType.DIRECTORY,
  link: FileType.SYMLINK,
  other: FileType.UNSPECIFIED,
} as const;

export interface EntryParts {
  readonly commands: Commands;
  readonly accounts: Accounts;
}

/** @param facts of the path itself */
export async function entryOf(
  { commands, accounts }: EntryParts,
  target: Target,
  account: Account,
  path: string,
  facts: FileFacts,
): Promise<EntryInfo> {
  const [entry] = await entriesOf({ commands, accounts }, target, account, [{ path, facts }]);
  if (entry === undefined) throw new Error("An entry was made of nothing");
  return entry;
}

/** Links among them are followed together. */
export async function entriesOf(
  parts: EntryParts,
  target: Target,
  account: Account,
  found: readonly { readonly path: string; readonly facts: FileFacts }[],
): Promise<EntryInfo[]> {
  const links = found.filter(({ facts }) => facts.kind === "link").map(({ path }) => path);
  const ends = await realPaths(parts.commands, target, links);
  const led = new Map(links.map((path, i) => [path, ends[i] ?? path]));
  const entries: EntryInfo[] = [];
  for (const { path, facts } of found) {
    const to = led.get(path) ?? null;
    entries.push(await describe(parts, target, account, { path, facts, to }));
  }
  return entries;
}

async function describe(
  { commands, accounts }: EntryParts,
  target: Target,
  account: Account,
  found: { readonly path: string; readonly facts: FileFacts; readonly to: string | null },
): Promise<EntryInfo> {
  const { path, facts, to } = found;
  const { owner, group } = await accounts.names(target, facts.uid, facts.gid);
  const led = to === null ? null : await followed(commands, target, account, to);
  const mode = (led?.facts?.mode ?? facts.mode) & 0o777;
  return create(EntryInfoSchema, {
    name: posix.basename(path) || "/",
    type: types[led?.facts?.kind ?? facts.kind],
    path,
    size: BigInt(facts.size),
    mode,
    permissions: permissionsOf(facts),
    owner,
    group,
    modifiedTime: timestampFromMs(facts.mtimeMs),
    ...(led === null ? {} : { symlinkTarget: led.path }),
    metadata: metadataOf((led?.facts ?? facts).attributes),
  });
}

/** Without facts where it leads to nothing. */
async function followed(commands: Commands, target: Target, account: Account, to: string) {
  try {
    const { value } = await asUserOrRoot(account, (user) =>
      commands.stat({ ...target, path: to, user }),
    );
    return { path: to, facts: value };
  } catch (error) {
    if (isRefused(error, "path_not_found", "path_is_link", "path_not_folder")) {
      return { path: to, facts: null };
    }
    throw error;
  }
}

/** As `ls -l` begins a line. */
export function permissionsOf({ kind, mode }: Pick<FileFacts, "kind" | "mode">): string {
  const first = { file: "-", directory: "d", link: "l", other: "?" }[kind];
  const bits = Array.from("rwxrwxrwx", (letter, i) => ((mode >> (8 - i)) & 1 ? letter : "-"));
  const special = (at: number, bit: number, set: string, unset: string): void => {
    if ((mode & bit) !== 0) bits[at] = bits[at] === "x" ? set : unset;
  };
  special(2, 0o4000, "s", "S");
  special(5, 0o2000, "s", "S");
  special(8, 0o1000, "t", "T");
  return first + bits.join("");
}
