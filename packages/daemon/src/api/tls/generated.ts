/**
 * Certificates that the daemon makes for itself, of an authority of its own. The key of a server's certificate is in
 * memory alone, and another one after each start.
 *
 * Clients take no wildcard right below a domain of one label (`*.localhost`), so names there get a certificate of
 * their own when they are asked for.
 */
import type { webcrypto } from "node:crypto";
import { isIP } from "node:net";
import { hostname, networkInterfaces } from "node:os";
import { createSecureContext } from "node:tls";
import type { SecureContext } from "node:tls";
import type { JsonGeneralNames } from "@peculiar/x509";
import ipaddr from "ipaddr.js";
import type { Log } from "../../core/ports/log.ts";
import { AUTHORITY_LEFT_MS, makeKey, openAuthority, pemOfKey, vouch } from "./authority.ts";
import type { Authority, Places } from "./authority.ts";
import type { Certificates, KeyPair } from "./certificates.ts";

const DAY_MS = 24 * 60 * 60 * 1000;
/** Of a server's certificate; another takes its place at half of it. */
export const SERVER_LIFE_MS = 60 * DAY_MS;
const LOOK_MS = 60 * 60 * 1000;
/** Names with a certificate of their own that are kept. */
const NAMES_MAX = 512;

export interface GeneratedOptions {
  /** Where the authority is kept. */
  readonly folder: string;
  /** As it is listened on: a name or an address. */
  readonly host: string;
  /** Of preview hosts. */
  readonly domain: string;
  readonly nowMs: () => number;
  readonly log: Log;
  /** Between looks at what is left of their lives, milliseconds. */
  readonly lookMs?: number;
}

interface Made {
  readonly authority: Authority;
  readonly keys: webcrypto.CryptoKeyPair;
  readonly pair: KeyPair;
  readonly names: string;
  readonly fromMs: number;
  readonly contexts: Map<string, Promise<SecureContext>>;
}

export async function openGeneratedCertificates(options: GeneratedOptions): Promise<Certificates> {
  const { nowMs, log, domain, lookMs = LOOK_MS } = options;
  const takers: ((pair: KeyPair) => void)[] = [];
  let made = await make(options);
  const look = async (): Promise<void> => {
    const age = nowMs() - made.fromMs;
    // A clock that was set back, and addresses that came later, are reasons as well.
    const isDue = age >= SERVER_LIFE_MS / 2 || age < 0 || namesOf(options).text !== made.names;
    if (!isDue) return;
    made = await make(options);
    for (const take of takers) take(made.pair);
  };
  const looking = setInterval(() => {
    look().catch((error: unknown) => {
      log("error", "No certificate could be made", { why: (error as Error).message });
    });
  }, lookMs).unref();
  return {
    get pair() {
      return made.pair;
    },
    authorityFile: made.authority.file,
    contextFor: (asked) => {
      const name = asked.toLowerCase();
      const isOwn = isLabelBelow(name, "localhost") || isLabelBelow(name, domain);
      return isOwn ? contextFor(made, name) : Promise.resolve(null);
    },
    follow: (take) => void takers.push(take),
    close: () => clearInterval(looking),
  };
}

async function make(options: GeneratedOptions): Promise<Made> {
  const fromMs = options.nowMs();
  const { alternatives, text, places } = namesOf(options);
  const authority = await openAuthority(options.folder, places, fromMs);
  const keys = await makeKey();
  const cert = await vouch(authority, alternatives, keys.publicKey, lifeFrom(fromMs));
  options.log(authority.isNew ? "warn" : "info", said(authority), {
    file: authority.file,
    validTo: authority.certificate.notAfter.toISOString(),
  });
  const pair = { cert, key: pemOfKey(keys.privateKey) };
  return { authority, keys, pair, names: text, fromMs, contexts: new Map() };
}

function said({ isNew }: Authority): string {
  return isNew
    ? "A new certificate authority was made: clients have to trust this file"
    : "Clients have to trust this certificate authority";
}

function lifeFrom(fromMs: number): [number, number] {
  if (SERVER_LIFE_MS > AUTHORITY_LEFT_MS) throw new Error("It would outlive its authority");
  return [fromMs, fromMs + SERVER_LIFE_MS];
}

interface Names {
  readonly alternatives: JsonGeneralNames;
  readonly text: string;
  /** That an authority has to be allowed. */
  readonly places: Places;
}

function namesOf({ host, domain }: GeneratedOptions): Names {
  const isEverywhere = host === "0.0.0.0" || /^[0:]+$/.test(host);
  const own = isEverywhere ? [hostname(), ...addresses()] : [host];
  const below = [domain, `*.${domain}`, `api.${domain}`];
  const all = ["localhost", "*.localhost", "127.0.0.1", "::1", ...below, ...own];
  const unique = [...new Set(all.map((name) => name.toLowerCase()))];
  const names = unique.filter((name) => isIP(name) === 0);
  return {
    alternatives: unique.map((value) => ({ type: isIP(value) === 0 ? "dns" : "ip", value })),
    text: unique.join(" "),
    places: {
      domains: ["localhost", domain, ...own]
        .map((name) => name.toLowerCase())
        .filter((name) => names.includes(name)),
      addresses: own.filter(
        (name) => isIP(name) !== 0 && ipaddr.process(name).range() === "unicast",
      ),
    },
  };
}

function addresses(): string[] {
  return Object.values(networkInterfaces())
    .flatMap((each) => each ?? [])
    .filter(({ address }) => !address.startsWith("fe80:"))
    .map(({ address }) => address)
    .sort();
}

function isLabelBelow(name: string, domain: string): boolean {
  if (!name.endsWith(`.${domain}`)) return false;
  return /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(name.slice(0, -domain.length - 1));
}

/** The one that was made before, if it is kept. */
function contextFor(made: Made, name: string): Promise<SecureContext> {
  const { authority, contexts, fromMs, keys, pair } = made;
  const kept = contexts.get(name);
  const context =
    kept ??
    vouch(authority, [{ type: "dns", value: name }], keys.publicKey, lifeFrom(fromMs)).then(
      (cert) => createSecureContext({ cert, key: pair.key }),
    );
  // Whoever was asked for least lately goes.
  contexts.delete(name);
  contexts.set(name, context);
  for (const oldest of contexts.keys()) {
    if (contexts.size <= NAMES_MAX) break;
    contexts.delete(oldest);
  }
  return context;
}
