/** Certificates that somebody else makes and renews: files that are looked at again now and then. */
import { createPrivateKey, X509Certificate } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { Log } from "../../core/ports/log.ts";
import type { Certificates, KeyPair } from "./certificates.ts";

export interface GivenFiles {
  /** Paths of PEM files. */
  readonly certFile: string;
  readonly keyFile: string;
}

const LOOK_MS = 60_000;

/**
 * @param now what the files held when they were asked for
 * @param lookMs between looks at them, milliseconds
 */
export function givenCertificates(
  files: GivenFiles,
  now: KeyPair,
  log: Log,
  lookMs = LOOK_MS,
): Certificates {
  const takers: ((pair: KeyPair) => void)[] = [];
  let [pair, seen] = [now, now];
  const look = async (): Promise<void> => {
    const next = await readPair(files).catch(() => null);
    // One file is renewed before the other: what does not fit together may at the next look.
    if (next === null || (next.cert === seen.cert && next.key === seen.key)) return;
    seen = next;
    try {
      const { validTo } = fitting(next);
      for (const take of takers) take(next);
      pair = next;
      log("info", "A renewed certificate is used", { file: files.certFile, validTo });
    } catch (error) {
      const { message: why } = error as Error;
      log("warn", "A renewed certificate is not used", { file: files.certFile, why });
    }
  };
  const looking = setInterval(() => void look(), lookMs).unref();
  return {
    get pair() {
      return pair;
    },
    authorityFile: null,
    contextFor: () => Promise.resolve(null),
    follow: (take) => void takers.push(take),
    close: () => clearInterval(looking),
  };
}

export async function readPair({ certFile, keyFile }: GivenFiles): Promise<KeyPair> {
  const [cert, key] = await Promise.all([readFile(certFile, "utf8"), readFile(keyFile, "utf8")]);
  return { cert, key };
}

/** @throws where the two are no certificate and its key */
function fitting({ cert, key }: KeyPair): X509Certificate {
  const certificate = new X509Certificate(cert);
  if (!certificate.checkPrivateKey(createPrivateKey(key))) {
    throw new Error("the key is of another certificate");
  }
  return certificate;
}
