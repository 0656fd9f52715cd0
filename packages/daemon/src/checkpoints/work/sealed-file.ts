/** Jobs on sealed files: encrypt a part; read one, checked by size and digest before it is parsed. */
import { hash } from "node:crypto";
import { closeSync, fstatSync, readSync } from "node:fs";
import { Damage } from "../damage.ts";
import { decodePageMap, pageMapBytesMax } from "../page-map-file.ts";
import type { PageMap } from "../page-map.ts";
import { seal, unseal } from "../sealed.ts";
import type { SealLabel } from "../sealed.ts";
import { openPart } from "./read-pages.ts";

/** Device state is at most 16 MiB; compression may make it a little longer. */
const devicesBytesMax = 16 * 1024 * 1024;

export interface SealDevicesInput {
  readonly agentKey: Uint8Array;
  readonly label: SealLabel;
  readonly body: Uint8Array;
}

export interface SealedFile {
  readonly file: Uint8Array<ArrayBuffer>;
  readonly digest: string;
}

export function sealDevices({ agentKey, label, body }: SealDevicesInput): SealedFile {
  if (body.length > devicesBytesMax) throw new Error("The device state is over 16 MiB");
  const file = seal(agentKey, label, body);
  return { file, digest: hash("sha256", file) };
}

export interface OpenSealedInput {
  readonly path: string;
  readonly bytes: number;
  readonly digest: string;
  readonly agentKey: Uint8Array;
  readonly label: SealLabel;
}

export function openDevices(input: OpenSealedInput): Uint8Array<ArrayBuffer> {
  return unseal(input.agentKey, input.label, readVerified(input), devicesBytesMax);
}

export function openMap(input: OpenSealedInput & { readonly pageCount: number }): PageMap {
  const bytesMax = pageMapBytesMax(input.pageCount);
  const body = unseal(input.agentKey, input.label, readVerified(input), bytesMax);
  return decodePageMap(body, input.pageCount);
}

function readVerified({ path, bytes, digest, label: { part } }: OpenSealedInput): Uint8Array {
  const fd = openPart(part, path);
  try {
    if (fstatSync(fd).size !== bytes) {
      throw new Damage(part, "size", `its ${part} does not have the size that was written`);
    }
    const file = new Uint8Array(bytes);
    if (readSync(fd, file, 0, bytes, 0) !== bytes || hash("sha256", file) !== digest) {
      throw new Damage(part, "digest", `its ${part} does not have the digest in the manifest`);
    }
    return file;
  } finally {
    closeSync(fd);
  }
}
