/**
 * Names, as this host knows them: its hosts file, then the name servers of its resolv.conf. Both are read for each name, so
 * that a change holds at once.
 *
 * Not by getaddrinfo: that takes a thread of the daemon's few for as long as a name server is silent, and whoever is
 * inside chooses the names.
 */
import { Resolver } from "node:dns/promises";
import { readFile } from "node:fs/promises";

export interface ResolveOptions {
  readonly hostsPath?: string;
  /** As `Resolver.setServers` takes them; default: those of the host. */
  readonly servers?: readonly string[];
}

const ANSWER_MS = 3_000;
const TRIES = 2;

/** @param name in lower case @throws where nobody knows it */
export async function resolveName(
  name: string,
  { hostsPath = "/etc/hosts", servers }: ResolveOptions = {},
): Promise<string[]> {
  const local = addressesIn(await readFile(hostsPath, "latin1").catch(() => ""), name);
  if (local.length > 0) return local;
  const resolver = new Resolver({ timeout: ANSWER_MS, tries: TRIES });
  if (servers !== undefined) resolver.setServers(servers);
  const answers = await Promise.allSettled([resolver.resolve4(name), resolver.resolve6(name)]);
  const found = answers.flatMap((answer) => (answer.status === "fulfilled" ? answer.value : []));
  if (found.length > 0) return found;
  const [first] = answers;
  throw new Error(`No address of "${name}" is known${whyOf(first)}`);
}

/** Where nobody answered, that is said: the name may well be there. */
function whyOf(answer: PromiseSettledResult<unknown>): string {
  const { code = "" } = answer.status === "rejected" ? (answer.reason as { code?: string }) : {};
  return code === "" || code === "ENOTFOUND" || code === "ENODATA" ? "" : ` (${code})`;
}

/** Of a hosts file, in its order. */
export function addressesIn(hosts: string, name: string): string[] {
  return hosts.split("\n").flatMap((line) => {
    const [address = "", ...names] = line.replace(/#.*/, "").trim().split(/\s+/);
    return names.some((each) => each.toLowerCase() === name) ? [address] : [];
  });
}
