/**
 * The manifest of a checkpoint, version 1: everything that must be right before its bytes are let
 * near a VM. Canonical JSON, addressed by its SHA-256, signed with the host's Ed25519 key.
 *
 * Version 1 has all its fields from the first release on; those that nothing writes yet are optional.
 * A released version never changes: a field that means something new gets a new name.
 */
import { z } from "zod";
import {
  agentIdSchema,
  checkpointIdSchema,
  digestSchema,
  layerIdSchema,
  packIdSchema,
} from "./id.ts";
import { machineShapeSchema } from "./agent.ts";

export const PAGE_BYTES = 4096;

/** What a guest's kernel keeps time by. */
export const guestClockSchema = z.object({
  /** As the kernel names its source of time: `tsc`, `acpi_pm`, `kvm-clock`… */
  source: z.string().max(64),
  /** Ticks of the time stamp counter that the kernel takes for one second. Null: not known. */
  tscHz: z.number().int().positive().nullable(),
});
export type GuestClockFacts = z.infer<typeof guestClockSchema>;

/** What the VM ran on. A wake compares every field with the host and the agent's settings. */
export const substrateFactsSchema = z.object({
  /** Kind of VMM: `qemu`; `fake` in tests. */
  vmm: z.string(),
  vmmVersion: z.string(),
  /** Versioned machine type, `pc-i440fx-7.2`. */
  machineType: z.string(),
  /** SHA-256 of the whole device command line with paths taken out. */
  deviceDigest: digestSchema,
  shape: machineShapeSchema,
  /** Named CPU model with its flags, never `host` or `max`. */
  cpuModel: z.string(),
  /** CPUID feature words as the guest saw them, where known. */
  cpuid: z.string().optional(),
  accelerator: z.enum(["tcg", "kvm", "none"]),
  /** Frequency of the guest's time stamp counter. 0: not known. */
  tscKhz: z.number().int().nonnegative(),
  /** What of a guest's clocks the VMM can move at a wake: its time stamp counter. Absent: none. */
  movableClock: z.enum(["tsc"]).optional(),
  /** What the guest said at the cut of what it keeps time by. Absent: guest agents from before do not tell. */
  guestClock: guestClockSchema.optional(),
  kernel: digestSchema,
  initramfs: digestSchema,
  /** Protocol version of the guest agent inside. */
  guestProtocol: z.number().int().positive(),
});
export type SubstrateFacts = z.infer<typeof substrateFactsSchema>;

/** The immutable file that memory is mapped from; `zero` is a file of holes. */
export const memoryBaseSchema = z.object({
  kind: z.enum(["template", "own", "zero"]),
  /** SHA-256 of the whole file; all zeros for `zero`. */
  digest: digestSchema,
  bytes: z.number().int().positive(),
});
export type MemoryBaseFacts = z.infer<typeof memoryBaseSchema>;

export const manifestMemorySchema = z.object({
  pageBytes: z.literal(PAGE_BYTES),
  base: memoryBaseSchema,
  /** The encrypted page map file. */
  pageMap: z.object({ digest: digestSchema, bytes: z.number().int().positive() }),
  packs: z.array(z.object({ id: packIdSchema, bytes: z.number().int().positive() })),
  /** Pages that differ from the base: zero ones, and stored ones. */
  zeroPages: z.number().int().nonnegative(),
  storedPages: z.number().int().nonnegative(),
});

export const manifestDiskSchema = z.object({
  /** The image's root file system at this disk size; null where the VM has no disk. */
  image: z.object({ digest: digestSchema, bytes: z.number().int().positive() }).nullable(),
  /** From the lowest layer above the image to the top. Immutable files. */
  layers: z.array(
    z.object({ id: layerIdSchema, digest: digestSchema, bytes: z.number().int().positive() }),
  ),
  /** `clean`: flushed after the freeze; a cold start from it alone finds every file. */
  cleanliness: z.enum(["clean", "crash-consistent"]),
});

/**
 * What the checkpoint was taken for.
 *
 * - `template`: an image's first boot, which agents begin from.
 * - `sleep`: a sleep; the machine ended with it.
 * - `named`: the verb `checkpoint`; the agent went on. It has a name only where one was given: without
 *   one the kind is the same, and the command line calls it `live`.
 * - `periodic`: taken by the clock; nothing writes it yet.
 * - `stop`: the disk at a stop, without memory.
 * - `crash-disk`: the newest disk of a machine that died, without memory.
 * - `import`: it came from a file, and is of another computer: whoever goes on from it gets an identity of its own.
 */
export const checkpointKindSchema = z.enum([
  "template",
  "sleep",
  "named",
  "periodic",
  "stop",
  "crash-disk",
  "import",
]);
export type CheckpointKind = z.infer<typeof checkpointKindSchema>;

export const manifestSchema = z.object({
  format: z.literal("perdure.checkpoint"),
  version: z.literal(1),
  checkpoint: checkpointIdSchema,
  agent: agentIdSchema,
  tenant: z.string(),
  /** The generation whose machine was captured. */
  generation: z.number().int().nonnegative(),
  kind: checkpointKindSchema,
  name: z.string().optional(),
  parent: checkpointIdSchema.nullable(),
  createdAtMs: z.number().int(),
  /** False where the freeze missed its deadline and the sleep went on all the same. */
  frozen: z.boolean(),
  substrate: substrateFactsSchema,
  /** Absent where only the disk was kept. */
  memory: manifestMemorySchema.optional(),
  devices: z.object({ digest: digestSchema, bytes: z.number().int().positive() }).optional(),
  disk: manifestDiskSchema,
  /** Where a checkpoint of kind `import` was taken. */
  importedFrom: z
    .object({
      agent: agentIdSchema,
      checkpoint: checkpointIdSchema,
      /** SHA-256 of its manifest there. */
      digest: digestSchema,
      /** SHA-256 of the public key of the host that signed it. */
      signer: digestSchema,
    })
    .optional(),
  framework: z
    .array(z.object({ component: z.string(), version: z.number().int(), digest: digestSchema }))
    .optional(),
  ledger: z
    .object({ position: z.number().int(), heads: z.record(z.string(), digestSchema) })
    .optional(),
  policyEpoch: z.number().int().optional(),
  claims: z
    .array(z.object({ subject: digestSchema, check: z.string(), verdict: z.string() }))
    .optional(),
});

/** A checkpoint described whole. */
export type Manifest = z.infer<typeof manifestSchema>;

/** A manifest as it lies on disk. */
export const signedManifestSchema = z.object({
  manifest: manifestSchema,
  /** Key id: first 16 hex digits of the SHA-256 of the public key's SPKI form. */
  key: z.string(),
  /** Ed25519 over the canonical JSON of `manifest`, base64. */
  signature: z.string(),
});
