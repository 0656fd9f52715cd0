/**
 * Template store: checkpoints of booted images, from which agents are created.
 *
 * A template's bytes (base, device state, one disk layer) are built once per key and shared by every
 * data directory that uses the same images folder; what a tenant's VMs may touch lies in the data
 * directory: a copy of the base per tenant where the VMM needs a writable descriptor for it.
 */
import type { Digest, LayerId, SubstrateFacts } from "@perdure/protocol";
import type { MemoryBase } from "./substrate.ts";

export interface Template {
  readonly key: Digest;
  readonly substrate: SubstrateFacts;
  readonly base: MemoryBase & { readonly kind: "template" };
  readonly devices: Uint8Array;
  /** The layer written while the template booted; lies above the image, below every agent's layers. */
  readonly layer: { readonly id: LayerId; readonly digest: Digest; readonly path: string } | null;
  readonly createdAtMs: number;
}

/** Where to put the parts of a template that is being built; the folder is removed if it fails. */
export interface TemplateDraft {
  /** Does not exist yet; the substrate makes it. */
  readonly basePath: string;
  /** An empty layer of the wanted disk size; null for a shape without a disk. */
  readonly layer: { readonly id: LayerId; readonly path: string } | null;
}

export interface TemplateStore {
  /**
   * The template of this key for the tenant, or null where it was never built. Verified: digests of
   * base, layer and devices once per host boot and whenever a file's identity changed.
   * @throws `checkpoint_digest_mismatch`
   */
  open(tenant: string, key: Digest): Promise<Template | null>;
  /**
   * Builds the template of this key unless another process just did (one builder per key and host; the
   * others wait). `boot` fills the draft. Durable on return; a crash leaves nothing under the key.
   * @param image what it is a template of, for `forget`
   * @throws `template_failed`, `disk_full`
   */
  build(
    key: Digest,
    diskBytes: number | null,
    boot: (
      draft: TemplateDraft,
    ) => Promise<{ readonly substrate: SubstrateFacts; readonly devices: Uint8Array }>,
    image?: Digest,
  ): Promise<void>;
  /**
   * Removes the templates of an image that no agent stands on, here and where data directories share them.
   * @returns the bases that are gone
   */
  forget(image: Digest): Promise<readonly Digest[]>;
}
