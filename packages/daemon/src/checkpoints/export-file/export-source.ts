/**
 * Where the parts of an export come from. Every file is opened before the first byte is read: what a
 * checkpoint named then is there to its end, whatever a collection takes away meanwhile.
 */
import { constants } from "node:fs";
import { open } from "node:fs/promises";
import type { FileHandle } from "node:fs/promises";
import type { AgentId, Digest } from "@perdure/protocol";
import type { ExportedImage } from "../../core/ports/export-file.ts";
import { Damage } from "../damage.ts";
import type { Part } from "../damage.ts";
import type { AgentFolder } from "../local/agent-folder.ts";
import type { ExportPart } from "./part.ts";

export interface SourcePlaces {
  readonly agent: AgentId;
  readonly folder: AgentFolder;
  readonly image: ExportedImage | null;
  readonly basePath: (digest: Digest) => Promise<string | null>;
}

export class ExportSources {
  readonly #files = new Map<ExportPart, FileHandle>();

  /** Opens the file of each part but the key's. @throws Damage where one is missing or of another length */
  async open(parts: readonly ExportPart[], places: SourcePlaces): Promise<void> {
    for (const part of parts) {
      if (part.kind === "key") continue;
      const file = await openFile(part, await pathOf(part, places));
      this.#files.set(part, file);
      if ((await file.stat()).size !== part.bytes) {
        throw new Damage(
          damagedPart(part),
          "size",
          `a ${part.kind} has not the size that was written`,
        );
      }
    }
  }

  /** Allocated bytes of all of them. */
  async diskBytes(): Promise<number> {
    let sum = 0;
    for (const file of this.#files.values()) sum += (await file.stat()).blocks * 512;
    return sum;
  }

  /** Reads `into` full from `offset` on. @throws Damage where the file ends before */
  async read(part: ExportPart, into: Uint8Array, offset: number): Promise<void> {
    const file = this.#files.get(part);
    if (file === undefined) throw new Error("The export is closed");
    for (let done = 0; done < into.length;) {
      const { bytesRead } = await file.read(into, done, into.length - done, offset + done);
      if (bytesRead === 0) {
        throw new Damage(damagedPart(part), "size", `a ${part.kind} became shorter`);
      }
      done += bytesRead;
    }
  }

  async close(): Promise<void> {
    const files = [...this.#files.values()];
    this.#files.clear();
    for (const file of files) await file.close();
  }
}

async function openFile(part: ExportPart, path: string | null): Promise<FileHandle> {
  const missing = (): Damage =>
    new Damage(damagedPart(part), "presence", `a ${part.kind} is missing`);
  if (path === null) throw missing();
  return open(path, constants.O_RDONLY | constants.O_NOFOLLOW).catch((error: unknown) => {
    const { code } = error as NodeJS.ErrnoException;
    throw code === "ENOENT" || code === "ELOOP" ? missing() : error;
  });
}

async function pathOf(
  part: ExportPart,
  { folder, image, basePath }: SourcePlaces,
): Promise<string | null> {
  switch (part.kind) {
    case "key":
      return null;
    case "page-map":
      return folder.pageMap(part.checkpoint);
    case "devices":
      return folder.devices(part.checkpoint);
    case "pack":
      return folder.pack(part.id);
    case "layer":
      return folder.layer(part.id);
    case "base":
      return basePath(part.digest);
    case "kernel":
    case "initramfs":
    case "rootfs":
      return image?.[part.kind]?.path ?? null;
  }
}

/** What a checkpoint calls it. */
export function damagedPart({ kind }: ExportPart): Part {
  switch (kind) {
    case "key":
    case "kernel":
    case "initramfs":
    case "rootfs":
      return "template";
    case "page-map":
    case "devices":
    case "pack":
    case "base":
    case "layer":
      return kind;
  }
}
