/**
 * What a template is, as it lies beside its files: `template.json` in the images folder as it was
 * built, `record.json` in a tenant's folder, signed with the host's key, as it was taken over.
 */
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import {
  canonicalJson,
  parseCanonical,
  digestSchema,
  layerIdSchema,
  substrateFactsSchema,
} from "@perdure/protocol";
import type { CanonicalValue, Digest } from "@perdure/protocol";
import { z } from "zod";
import { Damage } from "../damage.ts";
import { isSignedBy, signatureOf } from "../signature.ts";
import type { SigningKey } from "../signature.ts";

const fileSchema = z.object({ digest: digestSchema, bytes: z.number().int().positive() });

const templateRecordSchema = z.object({
  format: z.literal("perdure.template"),
  version: z.literal(1),
  key: digestSchema,
  /** Absent in those that were built before it was kept. */
  image: digestSchema.optional(),
  substrate: substrateFactsSchema,
  /** Content digests of base and layer (`content-digest.ts`); SHA-256 of the device state. */
  base: fileSchema,
  devices: fileSchema,
  layer: fileSchema.extend({ id: layerIdSchema }).nullable(),
  createdAtMs: z.number().int(),
});
export type TemplateRecord = z.infer<typeof templateRecordSchema>;

const signedSchema = z.object({
  template: z.unknown(),
  key: z.string(),
  signature: z.string(),
});

export function encodeRecord(record: TemplateRecord): Uint8Array {
  return Buffer.from(canonicalJson(record as unknown as CanonicalValue));
}

/** @throws Damage */
export function decodeRecord(text: string): TemplateRecord {
  return parse(text, templateRecordSchema);
}

export function encodeSignedRecord(key: SigningKey, template: TemplateRecord): Uint8Array {
  const value = template as unknown as CanonicalValue;
  const signature = signatureOf(key, canonicalJson(value));
  return Buffer.from(canonicalJson({ key: key.id, signature, template: value }));
}

/** @throws Damage */
export function decodeSignedRecord(key: SigningKey, text: string): TemplateRecord {
  const signed = parse(text, signedSchema);
  const template = canonicalJson(signed.template as CanonicalValue);
  if (signed.key !== key.id || !isSignedBy(key, template, signed.signature)) {
    throw new Damage("template", "signature", "its record was not signed by this host's key");
  }
  return decodeRecord(template);
}

/** Canonical JSON of this form and nothing else. */
function parse<T>(text: string, schema: z.ZodType<T>): T {
  const parsed = schema.safeParse(parseCanonical(text));
  if (!parsed.success) throw new Damage("template", "format", "its record is malformed");
  return parsed.data;
}

/**
 * Records of the templates in `folder` that are of this image. What cannot be read is of none; signatures are
 * not looked at: this is for removing them.
 */
export async function templatesOf(
  folder: string,
  file: "record.json" | "template.json",
  image: Digest,
): Promise<TemplateRecord[]> {
  const names = await readdir(folder).catch((): string[] => []);
  const found: TemplateRecord[] = [];
  for (const name of names.filter((each) => digestSchema.safeParse(each).success)) {
    const text = await readFile(join(folder, name, file), "utf8").catch(() => "null");
    const record = templateRecordSchema.safeParse(unsigned(text));
    if (record.success && record.data.image === image && record.data.key === name) {
      found.push(record.data);
    }
  }
  return found;
}

function unsigned(text: string): unknown {
  try {
    const value = JSON.parse(text) as { readonly template?: unknown } | null;
    return value?.template ?? value;
  } catch {
    return null;
  }
}
