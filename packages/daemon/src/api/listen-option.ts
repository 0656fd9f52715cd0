/**
 * `--listen` and what goes with it. Beyond this host nothing is said in the clear unless that was asked
 * for: a key that is overheard is whoever overheard it.
 */
import { lookup } from "node:dns/promises";
import { isIP } from "node:net";
import { resolve } from "node:path";
import { PerdureError } from "@perdure/protocol";
import type { TcpSettings } from "./tcp.ts";
import { readPair } from "./tls/given.ts";
import type { TlsChoice } from "./tls/open.ts";

export interface ListenOptions {
  /** `HOST:PORT`, `[ADDRESS]:PORT`, or a port of this host alone. */
  readonly listen: string;
  /** `generated`, or absent. */
  readonly tls?: string | undefined;
  /** Paths of PEM files. */
  readonly tlsCert?: string | undefined;
  readonly tlsKey?: string | undefined;
  readonly insecure: boolean;
  readonly corsOrigins: readonly string[];
  /** Default `localhost`. */
  readonly previewDomain?: string | undefined;
}

/** @throws `bad_request` for what cannot be, and for what is not safe and not asked for */
export async function listenFrom(options: ListenOptions): Promise<TcpSettings> {
  const { host, port } = hostAndPort(options.listen);
  const tls = await tlsFrom(options);
  const addresses = await addressesOf(host);
  if (tls === null && !options.insecure && !addresses.every(isLoopback)) {
    throw refusal(
      `--listen: "${options.listen}" is reached from other hosts, and nothing protects what is said`,
      "Give --tls generated, or --tls-cert and --tls-key, or --insecure-listen where something before it does TLS.",
    );
  }
  const previewDomain = domainFrom(options.previewDomain ?? "localhost");
  return { host, port, tls, corsOrigins: options.corsOrigins.map(originFrom), previewDomain };
}

function hostAndPort(text: string): { host: string; port: number } {
  const found = /^(?:(?:\[([0-9A-Fa-f:.]+)\]|([^:[\]]+)):)?([0-9]{1,5})$/.exec(text);
  const [, bracketed, plain, digits] = found ?? [];
  const port = Number(digits);
  if (found === null || port > 65_535) {
    throw refusal(`--listen: "${text}" is no HOST:PORT`, "As in 127.0.0.1:7070, or [::1]:7070.");
  }
  return { host: bracketed ?? plain ?? "127.0.0.1", port };
}

async function addressesOf(host: string): Promise<readonly string[]> {
  if (isIP(host) !== 0) return [host];
  try {
    return (await lookup(host, { all: true })).map(({ address }) => address);
  } catch (error) {
    const { message } = error as Error;
    throw refusal(`--listen: "${host}" is no name of this host: ${message}`, undefined);
  }
}

function isLoopback(address: string): boolean {
  return address.startsWith("127.") || address === "::1" || address.startsWith("::ffff:127.");
}

async function tlsFrom({ tls, tlsCert, tlsKey }: ListenOptions): Promise<TlsChoice | null> {
  if (tls !== undefined) {
    if (tls !== "generated") throw refusal(`--tls: "${tls}" is not "generated"`, undefined);
    if (tlsCert === undefined && tlsKey === undefined) return tls;
    throw refusal("--tls generated goes without --tls-cert and --tls-key", undefined);
  }
  if (tlsCert === undefined && tlsKey === undefined) return null;
  if (tlsCert === undefined || tlsKey === undefined) {
    throw refusal("--tls-cert and --tls-key are given together, or not at all", undefined);
  }
  // They are read again later, wherever the daemon is then.
  const files = { certFile: resolve(tlsCert), keyFile: resolve(tlsKey) };
  try {
    return { ...files, ...(await readPair(files)) };
  } catch (error) {
    const { path, message } = error as NodeJS.ErrnoException;
    const option = path === files.certFile ? "--tls-cert" : "--tls-key";
    throw refusal(`${option}: cannot read "${path ?? ""}": ${message}`, undefined);
  }
}

/** As a browser sends it. */
function originFrom(text: string): string {
  if (text === "*") return text;
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url !== null && url.origin === text.replace(/\/$/, "") && /^https?:$/.test(url.protocol)) {
    return url.origin;
  }
  throw refusal(
    `--cors-origin: "${text}" is no origin of a page`,
    "As in https://console.example, without a path; * for every one.",
  );
}

/** A name that labels can be put before. */
function domainFrom(text: string): string {
  const domain = text.toLowerCase().replace(/\.$/, "");
  const label = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?";
  const { length } = domain;
  if (length <= 200 && new RegExp(`^${label}(\\.${label})*$`).test(domain) && isIP(domain) === 0) {
    return domain;
  }
  throw refusal(`--preview-domain: "${text}" is no domain`, "As in preview.example.com.");
}

function refusal(message: string, hint: string | undefined): PerdureError {
  return new PerdureError("bad_request", message, hint === undefined ? {} : { hint });
}
