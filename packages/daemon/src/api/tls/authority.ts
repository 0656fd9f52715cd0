/**
 * A certificate authority of this data directory, for clients to trust: in `<home>/tls`, its key readable by the
 * daemon alone. It can vouch for names of this daemon only (RFC 5280, 4.2.1.10), so that who trusts it trusts
 * nobody with other hosts, whoever may get hold of the key.
 */
import { createPrivateKey, createPublicKey, KeyObject, randomBytes, webcrypto } from "node:crypto";
import { chmod, mkdir, readFile, rename, writeFile } from "node:fs/promises";
import { isIPv4 } from "node:net";
import { hostname } from "node:os";
import { join } from "node:path";
import "reflect-metadata";
import { AsnConvert } from "@peculiar/asn1-schema";
import {
  GeneralName,
  GeneralSubtree,
  GeneralSubtrees,
  id_ce_nameConstraints,
  NameConstraints,
} from "@peculiar/asn1-x509";
import {
  AuthorityKeyIdentifierExtension,
  BasicConstraintsExtension,
  ExtendedKeyUsage,
  ExtendedKeyUsageExtension,
  Extension,
  KeyUsageFlags,
  KeyUsagesExtension,
  SubjectAlternativeNameExtension,
  SubjectKeyIdentifierExtension,
  X509Certificate,
  X509CertificateGenerator,
} from "@peculiar/x509";
import type { JsonGeneralNames } from "@peculiar/x509";
import ipaddr from "ipaddr.js";

const DAY_MS = 24 * 60 * 60 * 1000;
export const AUTHORITY_LIFE_MS = 3650 * DAY_MS;
/** Made anew when this little of its life is left: what it signs ends before it does. */
export const AUTHORITY_LEFT_MS = 365 * DAY_MS;
/** Clients whose clocks are behind. */
const BEHIND_MS = DAY_MS;
const algorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };

type CryptoKey = webcrypto.CryptoKey;
type KeyPair = webcrypto.CryptoKeyPair;

export interface Authority {
  readonly certificate: X509Certificate;
  readonly key: CryptoKey;
  readonly file: string;
  /** Whether it was made just now: nobody trusts it yet. */
  readonly isNew: boolean;
}

/** What an authority may vouch for. */
export interface Places {
  /** In lower case; names below them are meant, too. */
  readonly domains: readonly string[];
  /** Public ones. */
  readonly addresses: readonly string[];
}

/** Networks whose addresses are somebody else's in every network: those of this host may change among them. */
const nobodys = [
  ...["127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16"],
  ...["100.64.0.0/10", "::1/128", "fc00::/7", "fe80::/10"],
];

export function makeKey(): Promise<KeyPair> {
  return webcrypto.subtle.generateKey(algorithm, true, ["sign", "verify"]);
}

export function pemOfKey(key: CryptoKey): string {
  return KeyObject.from(key).export({ type: "pkcs8", format: "pem" }).toString();
}

/**
 * The one in the folder, or one made there where it is not, ends soon, or may not vouch for just these places
 * and for addresses that mean something else in every network.
 */
export async function openAuthority(
  folder: string,
  { domains, addresses }: Places,
  nowMs: number,
): Promise<Authority> {
  const file = join(folder, "ca.pem");
  const keyFile = join(folder, "ca-key.pem");
  const constraints = constraintsOf({ domains, addresses });
  const found = await read(file, keyFile).catch(() => null);
  if (found !== null && isFit(found.certificate, constraints, nowMs)) {
    return { ...found, file, isNew: false };
  }
  await mkdir(folder, { recursive: true, mode: 0o711 });
  const { privateKey: key, publicKey } = await makeKey();
  const certificate = await X509CertificateGenerator.create({
    serialNumber: serial(),
    subject: [{ CN: [`Perdure on ${hostname()}`] }],
    issuer: [{ CN: [`Perdure on ${hostname()}`] }],
    notBefore: new Date(nowMs - BEHIND_MS),
    notAfter: new Date(nowMs + AUTHORITY_LIFE_MS),
    signingAlgorithm: algorithm,
    publicKey,
    signingKey: key,
    extensions: [
      new BasicConstraintsExtension(true, 0, true),
      new KeyUsagesExtension(KeyUsageFlags.keyCertSign | KeyUsageFlags.cRLSign, true),
      await SubjectKeyIdentifierExtension.create(publicKey),
      new Extension(id_ce_nameConstraints, true, constraints),
    ],
  });
  // In this order: of what a crash leaves, the one does not fit the other, and both are made anew.
  await replace(keyFile, pemOfKey(key), 0o600);
  await replace(file, pemOf(certificate), 0o644);
  return { certificate, key, file, isNew: true };
}

/** A server's certificate for `names`, of `publicKey`, as PEM. */
export async function vouch(
  { certificate, key }: Authority,
  names: JsonGeneralNames,
  publicKey: CryptoKey,
  [fromMs, toMs]: readonly [number, number],
): Promise<string> {
  const made = await X509CertificateGenerator.create({
    serialNumber: serial(),
    subject: [{ CN: ["Perdure"] }],
    issuer: certificate.subjectName,
    notBefore: new Date(fromMs - BEHIND_MS),
    notAfter: new Date(toMs),
    signingAlgorithm: algorithm,
    publicKey,
    signingKey: key,
    extensions: [
      new BasicConstraintsExtension(false, undefined, true),
      new KeyUsagesExtension(KeyUsageFlags.digitalSignature, true),
      new ExtendedKeyUsageExtension([ExtendedKeyUsage.serverAuth]),
      new SubjectAlternativeNameExtension(names),
      await SubjectKeyIdentifierExtension.create(publicKey),
      await AuthorityKeyIdentifierExtension.create(certificate.publicKey),
    ],
  });
  return pemOf(made);
}

async function read(
  file: string,
  keyFile: string,
): Promise<Pick<Authority, "certificate" | "key">> {
  const [cert, pem] = await Promise.all([readFile(file, "utf8"), readFile(keyFile, "utf8")]);
  const certificate = new X509Certificate(cert);
  const object = createPrivateKey(pem);
  const key = object.toCryptoKey(algorithm, true, ["sign"]);
  const probe = randomBytes(16);
  const signed = await webcrypto.subtle.sign(algorithm, key, probe);
  const publicKey = createPublicKey(cert).toCryptoKey(algorithm, true, ["verify"]);
  if (!(await webcrypto.subtle.verify(algorithm, publicKey, signed, probe))) {
    throw new Error("The key is of another certificate");
  }
  // As it is meant to be, whoever copied it here.
  await chmod(keyFile, 0o600);
  return { certificate, key };
}

async function replace(path: string, text: string, mode: number): Promise<void> {
  const unfinished = `${path}.${randomBytes(6).toString("hex")}`;
  await writeFile(unfinished, text, { flag: "wx", mode, flush: true });
  await rename(unfinished, path);
}

function isFit(certificate: X509Certificate, constraints: ArrayBuffer, nowMs: number): boolean {
  const { value } = certificate.getExtension(id_ce_nameConstraints) ?? {};
  return (
    value !== undefined &&
    Buffer.from(value).equals(Buffer.from(constraints)) &&
    certificate.notBefore.getTime() <= nowMs &&
    certificate.notAfter.getTime() - nowMs > AUTHORITY_LEFT_MS
  );
}

function constraintsOf({ domains, addresses }: Places): ArrayBuffer {
  // Of IPv6 a host has others every day, out of one network.
  const own = addresses.map((address) => {
    if (isIPv4(address)) return `${address}/32`;
    return `${ipaddr.IPv6.networkAddressFromCIDR(`${address}/64`).toString()}/64`;
  });
  const names = [
    ...sorted(domains).map((dNSName) => new GeneralName({ dNSName })),
    ...sorted([...nobodys, ...own]).map((iPAddress) => new GeneralName({ iPAddress })),
  ];
  const subtrees = names.map((base) => new GeneralSubtree({ base }));
  return AsnConvert.serialize(
    new NameConstraints({ permittedSubtrees: new GeneralSubtrees(subtrees) }),
  );
}

function sorted(texts: readonly string[]): string[] {
  return [...new Set(texts)].sort();
}

function pemOf(certificate: X509Certificate): string {
  return `${certificate.toString("pem").trimEnd()}\n`;
}

/** Positive, and no number twice. */
function serial(): string {
  const bytes = randomBytes(16);
  bytes[0] = ((bytes[0] ?? 0) & 0x3f) | 0x40;
  return bytes.toString("hex");
}
