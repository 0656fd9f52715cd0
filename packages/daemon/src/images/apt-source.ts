/**
 * Where Debian packages come from on this host: its own mirror where it is the same Debian, else the
 * public one. Only addresses and a few settings of the way there are taken over.
 */
import { existsSync } from "node:fs";
import { readFile, readdir } from "node:fs/promises";
import { runTool } from "./tool-process.ts";

const publicMirror = "http://deb.debian.org/debian";
const publicSecurityMirror = "http://deb.debian.org/debian-security";
const keyrings = ["gpg", "pgp"].map((end) => `/usr/share/keyrings/debian-archive-keyring.${end}`);

/** A repository line as apt reads it: `uris` × `suites`. */
export interface AptEntry {
  readonly uris: readonly string[];
  readonly suites: readonly string[];
}

/** One-line entries of a `sources.list`. */
export function parseSourceLines(text: string): AptEntry[] {
  return text.split("\n").flatMap((line) => {
    const match = /^\s*deb\s+(?:\[[^\]]*\]\s*)?(\S+)\s+(\S+)/.exec(line);
    return match?.[1] !== undefined && match[2] !== undefined
      ? [{ uris: [match[1]], suites: [match[2]] }]
      : [];
  });
}

/** Stanzas of a deb822 `.sources` file. */
export function parseSourceStanzas(text: string): AptEntry[] {
  return text
    .split("\n")
    .filter((line) => !line.startsWith("#"))
    .join("\n")
    .split(/\n\s*\n/)
    .flatMap((stanza) => {
      const field = (name: string): string[] => {
        const match = new RegExp(`^${name}:((?:.*)(?:\\n[ \\t].*)*)`, "mi").exec(stanza);
        return match?.[1]?.split(/\s+/).filter((word) => word !== "") ?? [];
      };
      const enabled = field("Enabled")[0] !== "no";
      const entry = { uris: field("URIs"), suites: field("Suites") };
      return enabled && field("Types").includes("deb") && entry.uris.length > 0 ? [entry] : [];
    });
}

/** The lines of a `sources.list` for `suite`, from the host's own entries where they offer it. */
export function sourcesFor(suite: string, host: readonly AptEntry[], keyring?: string): string[] {
  const mirrorOf = (wanted: string): string | undefined =>
    host
      .find(({ suites }) => suites.includes(wanted))
      ?.uris.find((uri) => /^(https?|file|copy):/.test(uri));
  const main = mirrorOf(suite) ?? publicMirror;
  const options = `[arch=amd64${keyring === undefined ? "" : ` signed-by=${keyring}`}]`;
  return [
    `deb ${options} ${main} ${suite} main`,
    `deb ${options} ${mirrorOf(`${suite}-updates`) ?? main} ${suite}-updates main`,
    `deb ${options} ${mirrorOf(`${suite}-security`) ?? publicSecurityMirror} ${suite}-security main`,
  ];
}

/** Settings of the host's apt about reaching a mirror: proxies, certificates, dates. */
export function transportOptions(configDump: string): string[] {
  const wanted =
    /^Acquire::(Check-Date|Check-Valid-Until|Retries|(http|https)::(\S+::)?(Proxy|CaInfo|Verify-Peer|Verify-Host)) ".*";$/i;
  return configDump.split("\n").filter((line) => wanted.test(line));
}

export interface AptSource {
  /** Lines of a `sources.list`. */
  readonly lines: readonly string[];
  /** Lines of an `apt.conf`. */
  readonly options: readonly string[];
}

/** Reads this host's apt configuration. */
export async function hostAptSource(suite: string): Promise<AptSource> {
  const keyring = keyrings.find((path) => existsSync(path));
  return {
    lines: sourcesFor(suite, await hostEntries(), keyring),
    options: transportOptions(await runTool("apt-config", ["dump"])),
  };
}

async function hostEntries(): Promise<AptEntry[]> {
  const text = (path: string): Promise<string> => readFile(path, "utf8").catch(() => "");
  const parts = "/etc/apt/sources.list.d";
  const names = await readdir(parts).catch((): string[] => []);
  const entries = parseSourceLines(await text("/etc/apt/sources.list"));
  for (const name of names.sort()) {
    if (name.endsWith(".list")) entries.push(...parseSourceLines(await text(`${parts}/${name}`)));
    if (name.endsWith(".sources")) {
      entries.push(...parseSourceStanzas(await text(`${parts}/${name}`)));
    }
  }
  return entries;
}
