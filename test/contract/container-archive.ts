/**
 * For tests: container archives made byte by byte, so that they can be wrong in any way. Apart from the
 * code that is tested: what both had wrong would look right.
 */
import { createHash } from "node:crypto";
import { gzipSync, zstdCompressSync } from "node:zlib";

export interface TarRecord {
  /** Raw bytes as latin1. */
  readonly name: string;
  /** Of the header; default `0`, a file. */
  readonly type?: string;
  readonly link?: string;
  readonly data?: Buffer | string;
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  readonly mtime?: number;
  /** PAX records before the entry. */
  readonly pax?: Readonly<Record<string, string | Buffer>>;
  /** What the header announces, where that is not the length of the data. */
  readonly size?: number;
  readonly magic?: string;
  /** Written into the header after all else but its checksum. */
  readonly patch?: (block: Buffer) => void;
}

export const file = (
  name: string,
  data: Buffer | string = "",
  more: Partial<TarRecord> = {},
): TarRecord => ({ name, data, mode: 0o644, ...more });
export const folder = (name: string, more: Partial<TarRecord> = {}): TarRecord => ({
  name,
  type: "5",
  mode: 0o755,
  ...more,
});
export const symlink = (name: string, link: string, more: Partial<TarRecord> = {}): TarRecord => ({
  name,
  type: "2",
  link,
  mode: 0o777,
  ...more,
});
export const hardlink = (name: string, link: string, more: Partial<TarRecord> = {}): TarRecord => ({
  name,
  type: "1",
  link,
  ...more,
});

const zeroes = (length: number): Buffer => Buffer.alloc(length);
const pad = (data: Buffer): Buffer =>
  Buffer.concat([data, zeroes((512 - (data.length % 512)) % 512)]);

function octal(value: number, length: number): string {
  return `${value.toString(8).padStart(length - 1, "0")}\0`;
}

/** A header block with its checksum. */
export function tarHeader(record: TarRecord): Buffer {
  const block = zeroes(512);
  const size = record.size ?? Buffer.from(record.data ?? "").length;
  block.write(record.name, 0, 100, "latin1");
  block.write(octal(record.mode ?? 0o644, 8), 100, "latin1");
  block.write(octal(record.uid ?? 0, 8), 108, "latin1");
  block.write(octal(record.gid ?? 0, 8), 116, "latin1");
  block.write(octal(size, 12), 124, "latin1");
  block.write(octal(record.mtime ?? 1_700_000_000, 12), 136, "latin1");
  block.write(record.type ?? "0", 156, 1, "latin1");
  block.write(record.link ?? "", 157, 100, "latin1");
  block.write(record.magic ?? "ustar\x0000", 257, "latin1");
  record.patch?.(block);
  return withChecksum(block);
}

export function withChecksum(block: Buffer): Buffer {
  block.write("        ", 148, "latin1");
  let sum = 0;
  for (const byte of block) sum += byte;
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return block;
}

/** `LENGTH KEY=VALUE\n`. */
export function paxData(records: Readonly<Record<string, string | Buffer>>): Buffer {
  return Buffer.concat(
    Object.entries(records).map(([key, value]) => {
      const rest = Buffer.concat([
        Buffer.from(` ${key}=`),
        Buffer.from(value as Buffer),
        Buffer.from("\n"),
      ]);
      let digits = 1;
      while (String(digits + rest.length).length !== digits) digits += 1;
      return Buffer.concat([Buffer.from(String(digits + rest.length)), rest]);
    }),
  );
}

export function tar(records: readonly TarRecord[], end = true): Buffer {
  const parts = records.flatMap((record) => {
    const data = Buffer.from((record.data ?? "") as Buffer);
    const own = [tarHeader(record), pad(data)];
    const pax = { ...longFields(record), ...record.pax };
    if (Object.keys(pax).length === 0) return own;
    const extended = paxData(pax);
    return [tarHeader({ name: "PaxHeaders/x", type: "x", data: extended }), pad(extended), ...own];
  });
  return Buffer.concat(end ? [...parts, zeroes(1024)] : parts);
}

/** What the header's own fields cannot hold. */
function longFields({ name, link = "" }: TarRecord): Record<string, Buffer> {
  return {
    ...(name.length > 100 ? { path: Buffer.from(name, "latin1") } : {}),
    ...(link.length > 100 ? { linkpath: Buffer.from(link, "latin1") } : {}),
  };
}

export function sha256(data: Buffer): string {
  return createHash("sha256").update(data).digest("hex");
}

export type Compression = "gzip" | "zstd" | "none";

export interface LayerSample {
  readonly blob: Buffer;
  readonly diffId: string;
  readonly mediaType: string;
}

export function layer(
  content: readonly TarRecord[] | Buffer,
  compression: Compression = "gzip",
): LayerSample {
  const plain = Buffer.isBuffer(content) ? content : tar(content);
  const diffId = `sha256:${sha256(plain)}`;
  const type = "application/vnd.oci.image.layer.v1.tar";
  switch (compression) {
    case "gzip":
      return { blob: gzipSync(plain), diffId, mediaType: `${type}+gzip` };
    case "zstd":
      return { blob: zstdCompressSync(plain), diffId, mediaType: `${type}+zstd` };
    case "none":
      return { blob: plain, diffId, mediaType: type };
  }
}

export interface ImageSample {
  readonly layers: readonly LayerSample[];
  /** `config` of the configuration. */
  readonly config?: object;
  readonly os?: string;
  readonly architecture?: string;
  /** Merged over the whole configuration. */
  readonly configuration?: object;
}

export function configurationOf(image: ImageSample): Buffer {
  return json({
    created: "2026-01-02T03:04:05Z",
    architecture: image.architecture ?? "amd64",
    os: image.os ?? "linux",
    config: image.config ?? {},
    rootfs: { type: "layers", diff_ids: image.layers.map(({ diffId }) => diffId) },
    ...image.configuration,
  });
}

export const json = (value: unknown): Buffer => Buffer.from(JSON.stringify(value));

const blobName = (data: Buffer): string => `blobs/sha256/${sha256(data)}`;

const descriptor = (data: Buffer, mediaType: string, more: object = {}): object => ({
  mediaType,
  digest: `sha256:${sha256(data)}`,
  size: data.length,
  ...more,
});

interface Document {
  readonly data: Buffer;
  readonly mediaType: string;
  readonly more: object;
}

/** Files of an OCI layout, by name. Change them before they are put into an archive, and they are wrong. */
export function ociFiles(
  images: readonly (ImageSample & { readonly descriptor?: object })[],
  nested = false,
): Map<string, Buffer> {
  const files = new Map<string, Buffer>();
  const add = (data: Buffer): Buffer => {
    files.set(blobName(data), data);
    return data;
  };
  files.set("oci-layout", json({ imageLayoutVersion: "1.0.0" }));
  const manifests: Document[] = images.map((image) => {
    const config = add(configurationOf(image));
    const data = add(
      json({
        schemaVersion: 2,
        mediaType: "application/vnd.oci.image.manifest.v1+json",
        config: descriptor(config, "application/vnd.oci.image.config.v1+json"),
        layers: image.layers.map(({ blob, mediaType }) => descriptor(add(blob), mediaType)),
      }),
    );
    return {
      data,
      mediaType: "application/vnd.oci.image.manifest.v1+json",
      more: image.descriptor ?? {},
    };
  });
  const list = (documents: readonly Document[]): Buffer =>
    json({
      schemaVersion: 2,
      manifests: documents.map(({ data, mediaType, more }) => descriptor(data, mediaType, more)),
    });
  const inner = list(manifests);
  const mediaType = "application/vnd.oci.image.index.v1+json";
  files.set("index.json", nested ? list([{ data: add(inner), mediaType, more: {} }]) : inner);
  return files;
}

/** Files of `docker save` before version 25: a folder a layer, links where a layer comes again. */
export function dockerFiles(
  images: readonly (ImageSample & { readonly tags?: readonly string[] })[],
): Map<string, Buffer> {
  const files = new Map<string, Buffer>();
  const manifest = images.map((image) => {
    const config = configurationOf(image);
    const configName = `${sha256(config)}.json`;
    files.set(configName, config);
    const names = image.layers.map(({ blob }) => {
      const name = `${sha256(blob)}/layer.tar`;
      files.set(name, blob);
      return name;
    });
    return { Config: configName, RepoTags: image.tags ?? null, Layers: names };
  });
  files.set("manifest.json", json(manifest));
  return files;
}

export function archive(files: ReadonlyMap<string, Buffer>): Buffer {
  return tar([...files].map(([name, data]) => file(name, data)));
}

/** An archive of one image in an OCI layout. */
export function ociArchive(image: ImageSample): Buffer {
  return archive(ociFiles([image]));
}
