/**
 * The beginning of an export file:
 *
 *   "PERDUREX" | version 4 | length 4, both little-endian | header, canonical JSON
 *
 * then the content of each part in blocks, then the SHA-256 of all that came before.
 *
 * The header is signed by the host that made it, and so is every manifest in it. All that a part must be
 * follows from it: a file is read in one pass, and nothing in it is believed before it was compared.
 */
import { createHash, createPublicKey, hash } from "node:crypto";
import {
  PAGE_BYTES,
  agentIdSchema,
  agentNameSchema,
  canonicalJson,
  parseCanonical,
  checkpointEveryMsSchema,
  checkpointIdSchema,
  digestSchema,
  idleAfterMsSchema,
  machineShapeSchema,
  onCrashSchema,
  PerdureError,
} from "@perdure/protocol";
import type { CanonicalValue, Digest, Manifest } from "@perdure/protocol";
import { z } from "zod";
import type { ExportContents } from "../../core/ports/export-file.ts";
import { pageMapBytesMax } from "../page-map-file.ts";
import { PACKS_MAX } from "../page-map.ts";
import { decodeManifest, isSignedBy, signatureOf } from "../signature.ts";
import type { SigningKey, VerifyingKey } from "../signature.ts";
import { asInvalid, invalid } from "./invalid.ts";
import { exportLimits } from "./limit.ts";
import type { ImageDigests } from "./part.ts";
import { protectionSchema } from "./protection.ts";
import type { StreamReader } from "./stream-reader.ts";

export const MAGIC = Buffer.from("PERDUREX", "latin1");
export const VERSION = 1;
export const TRAILER_BYTES = 32;

const contentSchema = z.strictObject({
  sha256: digestSchema,
  bytes: z.number().int().positive().max(exportLimits.imageFileBytesMax),
});

const headerSchema = z.strictObject({
  format: z.literal("perdure.export"),
  exportedAtMs: z.number().int().nonnegative(),
  agent: z.strictObject({
    id: agentIdSchema,
    name: agentNameSchema,
    image: z.strictObject({ id: digestSchema, name: z.string().max(128) }),
    shape: machineShapeSchema,
    onCrash: onCrashSchema,
    start: z.boolean().optional(),
    idleAfterMs: idleAfterMsSchema,
    checkpointEveryMs: checkpointEveryMsSchema,
    template: digestSchema,
  }),
  head: checkpointIdSchema,
  /** Oldest first. */
  checkpoints: z
    .array(
      z.strictObject({
        /** The signed manifest as it lay on the disk. */
        manifest: z.string(),
        name: agentNameSchema.nullable(),
      }),
    )
    .min(1)
    .max(exportLimits.checkpointsMax),
  image: z
    .strictObject({
      description: z.string().max(exportLimits.imageDescriptionBytesMax),
      kernel: contentSchema,
      initramfs: contentSchema,
      rootfs: contentSchema.nullable(),
    })
    .nullable(),
  protection: protectionSchema,
  /** What the parts take on a disk, as their writer saw it: a hint for whoever makes room. */
  diskBytes: z.number().int().nonnegative(),
});
export type ExportHeader = z.infer<typeof headerSchema>;

const signedSchema = z.strictObject({
  header: headerSchema,
  /** Ed25519, SPKI, DER, base64. */
  publicKey: z.string().max(256),
  /** Ed25519 over the canonical JSON of `header`, base64. */
  signature: z.string().max(256),
});

export interface ReadHeader {
  readonly header: ExportHeader;
  readonly contents: ExportContents;
  readonly image: ImageDigests | null;
  /** SHA-256 of the header's text: blocks are bound to it. */
  readonly digest: Buffer;
}

/** SHA-256 of the public key in SPKI form. */
export function fingerprintOf({ publicKey }: VerifyingKey): Digest {
  return hash("sha256", publicKey.export({ type: "spki", format: "der" })) as Digest;
}

export function encodeHeader(
  key: SigningKey,
  header: ExportHeader,
): { readonly bytes: Buffer; readonly digest: Buffer } {
  const value = header as unknown as CanonicalValue;
  const text = canonicalJson({
    header: value,
    publicKey: key.publicKey.export({ type: "spki", format: "der" }).toString("base64"),
    signature: signatureOf(key, canonicalJson(value)),
  });
  const body = Buffer.from(text);
  if (body.length > exportLimits.headerBytesMax) {
    throw new PerdureError("too_large", "The agent has more checkpoints than fit into one export");
  }
  const head = Buffer.alloc(8);
  head.writeUInt32LE(VERSION);
  head.writeUInt32LE(body.length, 4);
  return { bytes: Buffer.concat([MAGIC, head, body]), digest: digestOf(body) };
}

function digestOf(bytes: Uint8Array): Buffer {
  return createHash("sha256").update(bytes).digest();
}

/** @throws `export_invalid`, `export_too_new` */
export async function readHeader(reader: StreamReader): Promise<ReadHeader> {
  const head = await reader.take(MAGIC.length + 8);
  if (!head.subarray(0, MAGIC.length).equals(MAGIC)) throw invalid("it is no export of an agent");
  const version = head.readUInt32LE(MAGIC.length);
  if (version > VERSION) {
    throw new PerdureError(
      "export_too_new",
      `The file cannot be imported: its format is version ${version}, and this daemon knows up to ${VERSION}`,
      { hint: "Import it with the newer daemon that wrote it.", details: { version } },
    );
  }
  if (version !== VERSION) throw invalid("its format has no version");
  const length = head.readUInt32LE(MAGIC.length + 4);
  if (length > exportLimits.headerBytesMax) throw invalid("its header is too long");
  const body = await reader.take(length);
  const signed = parse(body.toString("utf8"));
  const key = verifyingKey(signed.publicKey);
  const { header } = signed;
  const text = canonicalJson(header);
  if (!isSignedBy(key, text, signed.signature)) {
    throw invalid("the signature of its header is wrong");
  }
  const { image } = header;
  return { header, contents: contentsOf(header, key), image, digest: digestOf(body) };
}

function parse(text: string): z.infer<typeof signedSchema> {
  const parsed = signedSchema.safeParse(parseCanonical(text));
  if (!parsed.success) throw invalid("its header is malformed", parsed.error);
  return parsed.data;
}

function verifyingKey(base64: string): VerifyingKey {
  try {
    const spki = Buffer.from(base64, "base64");
    const publicKey = createPublicKey({ key: spki, format: "der", type: "spki" });
    const same = publicKey.export({ type: "spki", format: "der" }).equals(spki);
    if (same && publicKey.asymmetricKeyType === "ed25519") {
      return { id: hash("sha256", spki).slice(0, 16), publicKey };
    }
  } catch {
    // The same answer as for a key of another kind.
  }
  throw invalid("it has no key that this daemon knows");
}

/** What the header says, once all of it fits together. @throws `export_invalid` */
function contentsOf(header: ExportHeader, key: VerifyingKey): ExportContents {
  const checkpoints = header.checkpoints.map(({ manifest, name }) => {
    try {
      return { ...decodeManifest(key, Buffer.from(manifest)), name };
    } catch (error) {
      throw asInvalid(error);
    }
  });
  const ids = new Set(checkpoints.map(({ manifest }) => manifest.checkpoint));
  const names = checkpoints.flatMap(({ name }) => name ?? []);
  if (ids.size !== checkpoints.length || new Set(names).size !== names.length) {
    throw invalid("two of its checkpoints have one name");
  }
  if (!ids.has(header.head)) throw invalid("the checkpoint that it stands on is not in it");
  const sizes = new Map<string, string>();
  for (const { manifest } of checkpoints) {
    assertWithinLimits(manifest);
    assertFits(header, manifest);
    for (const [name, facts] of sharedFiles(manifest)) {
      if ((sizes.get(name) ?? facts) !== facts) throw invalid("two of its manifests contradict");
      sizes.set(name, facts);
    }
  }
  return {
    signer: fingerprintOf(key),
    exportedAtMs: header.exportedAtMs,
    agent: header.agent,
    head: header.head,
    checkpoints,
    image: header.image,
  };
}

/** What checkpoints of one agent may share, by name, with all that must be the same about it. */
function sharedFiles({ memory, disk }: Manifest): (readonly [string, string])[] {
  return [
    ...disk.layers.map(({ id, digest, bytes }) => [`layer ${id}`, `${digest} ${bytes}`] as const),
    ...(memory?.packs ?? []).map(({ id, bytes }) => [`pack ${id}`, String(bytes)] as const),
    ...(memory === undefined
      ? []
      : [[`base ${memory.base.digest}`, `${memory.base.kind} ${memory.base.bytes}`] as const]),
  ];
}

function assertWithinLimits({ memory, devices, disk, substrate }: Manifest): void {
  const { memoryBytes } = substrate.shape;
  const problems: (readonly [boolean, string])[] = [
    [disk.layers.length > exportLimits.layersPerCheckpointMax, "a disk has too many layers"],
    [disk.layers.some(({ bytes }) => bytes > exportLimits.layerBytesMax), "a layer is too large"],
    [new Set(disk.layers.map(({ id }) => id)).size !== disk.layers.length, "a layer comes twice"],
    [(memory === undefined) !== (devices === undefined), "a checkpoint has half of a machine"],
  ];
  if (memory !== undefined) {
    const { base, packs, pageMap } = memory;
    const mapMax = pageMapBytesMax(memoryBytes / PAGE_BYTES) + exportLimits.sealSlackBytes;
    const packMax = memoryBytes + exportLimits.packSlackBytes;
    problems.push(
      [base.bytes !== memoryBytes, "a memory base is not of the memory's size"],
      [pageMap.bytes > mapMax, "a page map is too large"],
      [packs.length > PACKS_MAX, "a checkpoint has too many packs"],
      [packs.some(({ bytes }) => bytes > packMax), "a pack is too large"],
    );
  }
  if (devices !== undefined) {
    problems.push([devices.bytes > exportLimits.devicesBytesMax, "a device state is too large"]);
  }
  const found = problems.find(([isWrong]) => isWrong);
  if (found !== undefined) throw invalid(found[1]);
}

/** Manifests, agent and image must be about each other. */
function assertFits(
  { agent, image }: ExportHeader,
  { agent: of, substrate, disk }: Manifest,
): void {
  if (of !== agent.id) throw invalid("a checkpoint is of another agent");
  if (image === null) return;
  const { rootfs, kernel, initramfs } = image;
  const same =
    kernel.sha256 === substrate.kernel &&
    initramfs.sha256 === substrate.initramfs &&
    (rootfs?.sha256 ?? null) === (disk.image?.digest ?? null) &&
    (rootfs?.bytes ?? null) === (disk.image?.bytes ?? null);
  if (!same) throw invalid("a checkpoint was not taken on the image that comes with it");
}
