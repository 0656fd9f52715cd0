/**
 * Writes an agent as one file: header, parts, digest of it all. Everything is verified while it is read, so
 * that damage breaks the file off in place of being handed on. Memory in use is a few blocks.
 */
import { createHash } from "node:crypto";
import type { AgentExport, ExportedImage, ExportRequest } from "../../core/ports/export-file.ts";
import type { ImageFile } from "../../core/ports/image-source.ts";
import { Damage } from "../damage.ts";
import { readManifest } from "../local/manifest-file.ts";
import type { StoreContext } from "../local/store-context.ts";
import { encodeManifest } from "../signature.ts";
import { storeError } from "../store-error.ts";
import { BlockCipher, encodeBlock } from "./block.ts";
import { ExportSources, damagedPart } from "./export-source.ts";
import { encodeHeader, fingerprintOf } from "./header.ts";
import { PART_BLOCK_BYTES, PartDigest } from "./part-digest.ts";
import { isCompressible, partsOf } from "./part.ts";
import type { ExportPart } from "./part.ts";
import { protect } from "./protection.ts";

/** Blocks that are read, compressed or waiting to be taken at once. */
const blocksAhead = 4;

export async function openExport(
  context: StoreContext,
  request: ExportRequest,
): Promise<AgentExport> {
  const { agent, image, head } = request;
  const { signing } = context.keyRing;
  const folder = context.folder(agent.id);
  const checkpoints = [];
  for (const { id, digest, name } of request.checkpoints) {
    const { manifest, digest: found } = await readManifest(context, agent.id, id);
    if (found !== digest) {
      throw new Damage("manifest", "digest", "its manifest is not the one that was published");
    }
    // The same text as on the disk: the form is canonical and the signature deterministic.
    const { file } = encodeManifest(signing, manifest);
    checkpoints.push({ manifest, text: Buffer.from(file).toString("utf8"), name });
  }
  const parts = partsOf(
    checkpoints.map(({ manifest }) => manifest),
    image,
  );
  const needsKey = parts.some(({ kind }) => kind === "key");
  const agentKey = needsKey ? await context.keyRing.agentKey(folder.key, agent.id) : null;
  const own = new Set(
    checkpoints.flatMap(({ manifest: { memory } }) =>
      memory?.base.kind === "own" ? [memory.base.digest] : [],
    ),
  );
  const sources = new ExportSources();
  try {
    await sources.open(parts, {
      agent: agent.id,
      folder,
      image,
      basePath: async (digest) =>
        own.has(digest) ? folder.base(digest) : context.findTemplateBase(request.tenant, digest),
    });
    const { protection, fileKey } = await protect(request.passphrase);
    const header = encodeHeader(signing, {
      format: "perdure.export",
      exportedAtMs: context.clock.nowMs(),
      agent,
      head,
      checkpoints: checkpoints.map(({ text, name }) => ({ manifest: text, name })),
      image: image === null ? null : imageFacts(image),
      protection,
      diskBytes: await sources.diskBytes(),
    });
    const cipher = fileKey === null ? null : new BlockCipher(fileKey, header.digest);
    const write = new ExportWrite({ parts, sources, agentKey, cipher });
    return {
      signer: fingerprintOf(signing),
      bytes: write.run(header.bytes, `export agent "${agent.name}"`),
      close: () => sources.close(),
    };
  } catch (error) {
    await sources.close();
    throw error;
  }
}

function imageFacts({ description, kernel, initramfs, rootfs }: ExportedImage) {
  const content = ({ sha256, bytes }: ImageFile) => ({ sha256, bytes });
  return {
    description,
    kernel: content(kernel),
    initramfs: content(initramfs),
    rootfs: rootfs === null ? null : content(rootfs),
  };
}

interface WriteParts {
  readonly parts: readonly ExportPart[];
  readonly sources: ExportSources;
  readonly agentKey: Uint8Array | null;
  readonly cipher: BlockCipher | null;
}

class ExportWrite {
  readonly #write: WriteParts;
  readonly #hash = createHash("sha256");

  constructor(write: WriteParts) {
    this.#write = write;
  }

  async *run(header: Buffer, action: string): AsyncGenerator<Uint8Array> {
    try {
      yield this.#counted(header);
      const ahead: Promise<Buffer>[] = [];
      let number = 0;
      for await (const { part, content } of this.#blocks()) {
        const encoded = encodeBlock(this.#write.cipher, number++, content, isCompressible(part));
        encoded.catch(() => undefined); // Awaited in turn.
        ahead.push(encoded);
        const first = ahead.length < blocksAhead ? undefined : ahead.shift();
        if (first !== undefined) yield this.#counted(await first);
      }
      for (const block of ahead) yield this.#counted(await block);
      yield this.#hash.digest();
    } catch (error) {
      throw storeError(error, action);
    } finally {
      await this.#write.sources.close();
    }
  }

  async *#blocks(): AsyncGenerator<{ readonly part: ExportPart; readonly content: Uint8Array }> {
    const { parts, sources, agentKey } = this.#write;
    for (const part of parts) {
      if (part.kind === "key") {
        if (agentKey !== null) yield { part, content: agentKey };
        continue;
      }
      const digest = new PartDigest(part);
      for (let offset = 0; offset < part.bytes; offset += PART_BLOCK_BYTES) {
        const content = Buffer.alloc(Math.min(PART_BLOCK_BYTES, part.bytes - offset));
        await sources.read(part, content, offset);
        digest.add(content);
        yield { part, content };
      }
      if (!digest.isRight()) {
        throw new Damage(
          damagedPart(part),
          "digest",
          `a ${part.kind} does not have the digest that was written`,
        );
      }
    }
  }

  #counted(bytes: Buffer): Buffer {
    this.#hash.update(bytes);
    return bytes;
  }
}
