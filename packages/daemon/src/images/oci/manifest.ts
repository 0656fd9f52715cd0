/**
 * Which image an archive holds: finds configuration and layers in an OCI image layout (`oci-archive`, and
 * what `docker save` has written since version 25) or in the older form of `docker save`.
 *
 * Every document is looked up by its digest and checked against it. Of an image for several platforms the
 * one for linux/amd64 is taken.
 */
import { PerdureError } from "@perdure/protocol";
import { z } from "zod";
import { invalid, quoted, tooLarge } from "./archive-error.ts";
import type { Limits } from "./archive-error.ts";
import type { ArchiveIndex } from "./archive-index.ts";
import { parseJson } from "./archive-index.ts";
import { checkDigest, parseDigest, readBlob } from "./blob.ts";
import type { Blob, BlobDigest } from "./blob.ts";
import { containerConfigSchema } from "./container-config.ts";
import type { ContainerConfig } from "./container-config.ts";

export interface FoundLayer {
  readonly blob: Blob;
  /** Of the blob as it is stored; null where the archive names none. */
  readonly stored: BlobDigest | null;
  /** Of the tar archive in it. */
  readonly unpacked: BlobDigest;
}

export interface FoundImage {
  /** Names the configuration, and with it all layers: what the image is. */
  readonly digest: BlobDigest;
  readonly config: ContainerConfig;
  /** Lowest first. */
  readonly layers: readonly FoundLayer[];
  /** What the archive calls it, or null. */
  readonly reference: string | null;
  /** Level of the instruction set that it was built for; absent: any. */
  readonly variant: string | undefined;
}

const platformSchema = z.looseObject({
  os: z.string(),
  architecture: z.string(),
  variant: z.string().optional(),
});
type Platform = z.infer<typeof platformSchema>;

const descriptorSchema = z.looseObject({
  mediaType: z.string().optional(),
  digest: z.string(),
  size: z.number().int().nonnegative(),
  platform: platformSchema.nullish(),
  annotations: z.record(z.string(), z.string()).nullish(),
});
type Descriptor = z.infer<typeof descriptorSchema>;

const indexSchema = z.looseObject({ manifests: z.array(descriptorSchema) });
const manifestSchema = z.looseObject({
  config: descriptorSchema,
  layers: z.array(descriptorSchema),
});
const dockerSchema = z
  .array(
    z.looseObject({
      Config: z.string(),
      RepoTags: z.array(z.string()).nullish(),
      Layers: z.array(z.string()),
    }),
  )
  .min(1);

/** An index in an index in … */
const indexDepthMax = 4;
/** Manifests of all indexes together. */
const manifestsMax = 1000;

const indexTypes = new Set([
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
]);
const configTypes = new Set([
  "application/vnd.oci.image.config.v1+json",
  "application/vnd.docker.container.image.v1+json",
]);

/**
 * @param wanted the reference of the image where the archive holds several
 * @throws `image_archive_invalid`, `not_supported`, `too_large`
 */
export async function findImage(
  archive: ArchiveIndex,
  wanted: string | undefined,
  limits: Limits,
): Promise<FoundImage> {
  if (archive.find("index.json") !== null) return findInLayout(archive, wanted, limits);
  if (archive.find("manifest.json") !== null) return findInDockerSave(archive, wanted, limits);
  throw invalid(`it has neither "index.json" (OCI image layout) nor "manifest.json" (docker save)`);
}

interface Candidate {
  readonly manifest: z.infer<typeof manifestSchema>;
  readonly reference: string | null;
  readonly platform: Platform | null;
}

async function findInLayout(
  archive: ArchiveIndex,
  wanted: string | undefined,
  limits: Limits,
): Promise<FoundImage> {
  const layout = await archive.json("oci-layout");
  const version = z.looseObject({ imageLayoutVersion: z.string() }).safeParse(layout);
  if (!version.success || !version.data.imageLayoutVersion.startsWith("1.")) {
    throw invalid('its "oci-layout" names no version 1');
  }
  const index = checked(indexSchema, await archive.json("index.json"), "its index");
  const candidates: Candidate[] = [];
  const skipped: string[] = [];
  let seen = 0;
  const collect = async (
    descriptors: readonly Descriptor[],
    above: string | null,
    depth: number,
  ): Promise<void> => {
    if (depth > indexDepthMax) throw invalid("its indexes hold each other");
    for (const descriptor of descriptors) {
      seen += 1;
      if (seen > manifestsMax)
        throw invalid(`its indexes name more than ${manifestsMax} manifests`);
      const reference = referenceOf(descriptor) ?? above;
      if (wanted !== undefined && reference !== null && reference !== wanted) continue;
      const platform = descriptor.platform ?? null;
      if (platform !== null && !isOurs(platform)) {
        skipped.push(showPlatform(platform));
        continue;
      }
      const document = await readDocument(archive, descriptor, "a manifest", limits);
      const isIndex = indexTypes.has(descriptor.mediaType ?? "") || hasManifests(document);
      if (isIndex) {
        const inner = checked(indexSchema, document, "an index in it");
        await collect(inner.manifests, reference, depth + 1);
      } else {
        const manifest = checked(manifestSchema, document, "a manifest in it");
        candidates.push({ manifest, reference, platform });
      }
    }
  };
  await collect(index.manifests, null, 1);

  const found: FoundImage[] = [];
  for (const { manifest, reference, platform } of candidates) {
    const { mediaType } = manifest.config;
    if (mediaType !== undefined && !configTypes.has(mediaType)) {
      skipped.push(`an artifact of type ${quoted(mediaType)}`);
      continue;
    }
    const image = await imageOf(archive, manifest, reference, platform?.variant, limits);
    const own = { os: image.config.os, architecture: image.config.architecture };
    if (platform === null && !isOurs(own)) skipped.push(showPlatform(own));
    else found.push(image);
  }
  return theOne(found, skipped, wanted);
}

async function imageOf(
  archive: ArchiveIndex,
  { config, layers }: z.infer<typeof manifestSchema>,
  reference: string | null,
  variant: string | undefined,
  limits: Limits,
): Promise<FoundImage> {
  const digest = parseDigest(config.digest);
  const document = await readDocument(archive, config, "the configuration", limits);
  const parsed = checked(containerConfigSchema, document, "the configuration");
  const blobs = layers.map((layer) => {
    const stored = parseDigest(layer.digest);
    return { stored, blob: blobOf(archive, layer, "a layer") };
  });
  return {
    digest,
    config: parsed,
    layers: withDiffIds(blobs, parsed, limits),
    reference,
    variant: variant ?? parsed.variant,
  };
}

async function findInDockerSave(
  archive: ArchiveIndex,
  wanted: string | undefined,
  limits: Limits,
): Promise<FoundImage> {
  const saved = checked(dockerSchema, await archive.json("manifest.json"), '"manifest.json"');
  const found: FoundImage[] = [];
  const skipped: string[] = [];
  for (const { Config: configName, RepoTags: tags, Layers: names } of saved) {
    if (wanted !== undefined && tags?.includes(wanted) !== true) {
      if (saved.length > 1 || (tags?.length ?? 0) > 0) continue;
    }
    const blob = archive.find(configName);
    if (blob === null) throw invalid(`it has no configuration ${quoted(configName)}`);
    const bytes = await readBlob(archive.file, blob, "the configuration", limits);
    const hex = /(?:^|\/)([0-9a-f]{64})(?:\.json)?$/.exec(configName)?.[1];
    if (hex === undefined)
      throw invalid(`its configuration ${quoted(configName)} is named by no digest`);
    const digest = parseDigest(`sha256:${hex}`);
    checkDigest(bytes, digest, "the configuration");
    const config = checked(
      containerConfigSchema,
      parseJson(bytes, "the configuration"),
      "the configuration",
    );
    const blobs = names.map((name) => {
      const layer = archive.find(name);
      if (layer === null) throw invalid(`it has no layer ${quoted(name)}`);
      return { stored: null, blob: layer };
    });
    if (!isOurs(config)) skipped.push(showPlatform(config));
    else {
      const layers = withDiffIds(blobs, config, limits);
      const reference = wanted ?? tags?.[0] ?? null;
      found.push({ digest, config, layers, reference, variant: config.variant });
    }
  }
  return theOne(found, skipped, wanted);
}

function withDiffIds(
  blobs: readonly { readonly blob: Blob; readonly stored: BlobDigest | null }[],
  { rootfs }: ContainerConfig,
  limits: Limits,
): FoundLayer[] {
  if (blobs.length > limits.layersMax) throw tooLarge("its layers", "layersMax", limits);
  if (blobs.length !== rootfs.diff_ids.length) {
    const named = rootfs.diff_ids.length;
    throw invalid(`it has ${blobs.length} layers, and its configuration names ${named}`);
  }
  return blobs.map((found, index) => {
    return { ...found, unpacked: parseDigest(rootfs.diff_ids[index] ?? "") };
  });
}

/** Where several are found, they must be one and the same. */
function theOne(
  all: readonly FoundImage[],
  skipped: readonly string[],
  wanted: string | undefined,
): FoundImage {
  // Of several levels of amd64 the one that runs everywhere.
  const plain = all.filter(({ variant }) => variant === undefined || variant === "v1");
  const found = plain.length > 0 ? plain : all;
  const [first] = found;
  if (first !== undefined) {
    if (found.every(({ digest }) => digest.hex === first.digest.hex)) return first;
    const names = found.map(({ reference }) =>
      reference === null ? "one without a name" : quoted(reference),
    );
    throw new PerdureError(
      "bad_request",
      `Cannot import the archive: it holds ${found.length} images: ${names.join(", ")}`,
      { hint: "Name the one that is wanted (--ref)." },
    );
  }
  if (skipped.length > 0) {
    throw new PerdureError(
      "not_supported",
      `Cannot import the archive: it holds ${[...new Set(skipped)].join(", ")}, and only linux/amd64 can run here`,
      { hint: 'Save the image for this platform, as in "docker pull --platform linux/amd64 …".' },
    );
  }
  throw invalid(wanted === undefined ? "it holds no image" : `it holds no image ${quoted(wanted)}`);
}

async function readDocument(
  archive: ArchiveIndex,
  descriptor: Descriptor,
  what: string,
  limits: Limits,
): Promise<unknown> {
  const digest = parseDigest(descriptor.digest);
  const bytes = await readBlob(archive.file, blobOf(archive, descriptor, what), what, limits);
  checkDigest(bytes, digest, what);
  return parseJson(bytes, what);
}

function blobOf(archive: ArchiveIndex, { digest, size }: Descriptor, what: string): Blob {
  const { algorithm, hex } = parseDigest(digest);
  const blob = archive.find(`blobs/${algorithm}/${hex}`);
  if (blob === null) throw invalid(`${what} is missing in it: ${algorithm}:${hex}`);
  if (blob.bytes === size) return blob;
  throw invalid(`${what} should have ${size} bytes and has ${blob.bytes}: ${algorithm}:${hex}`);
}

function hasManifests(document: unknown): boolean {
  return typeof document === "object" && document !== null && "manifests" in document;
}

/** As `skopeo` and `docker` note it. */
function referenceOf({ annotations }: Descriptor): string | null {
  return (
    annotations?.["io.containerd.image.name"] ??
    annotations?.["org.opencontainers.image.ref.name"] ??
    null
  );
}

/** Variants of amd64 are levels of one instruction set; what a VM's CPU lacks is told when a program needs it. */
function isOurs({ os, architecture }: Pick<Platform, "os" | "architecture">): boolean {
  return os === "linux" && architecture === "amd64";
}

function showPlatform({ os, architecture, variant }: Platform): string {
  const text = [os, architecture, ...(variant === undefined ? [] : [variant])].join("/");
  return quoted(text).slice(1, -1);
}

function checked<S extends z.ZodType>(schema: S, value: unknown, what: string): z.output<S> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  const field = (issue?.path ?? []).map(String).join(".").slice(0, 100);
  throw invalid(
    `${what} is malformed${field === "" ? "" : ` at ${quoted(field)}`}: ${issue?.message ?? ""}`,
  );
}
