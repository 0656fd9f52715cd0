/** API keys: who may reach the daemon over TCP, and what for. */
import { z } from "zod";
import { agentNameSchema } from "./agent.ts";
import { agentRefSchema, nextPageSchema, pageLimitSchema } from "./api.ts";
import { keyIdSchema } from "./id.ts";
import { givenMomentSchema } from "./rest.ts";

/** Bounds of API keys. */
export const keyLimits = {
  /** Of one tenant. */
  keysMax: 1000,
  /** Agents that one key may be limited to. */
  agentsMax: 100,
  secretBytes: 32,
  /** Keys that were refused, of one address: so many at once, then one each `refusalEveryMs`. */
  refusalsMax: 10,
  refusalEveryMs: 6_000,
  /** When a key was used last is told to within so much. */
  lastUsedEveryMs: 60_000,
} as const;

/** What a key allows: to look; to use agents (exec, files, sleep, wake), too; everything. */
export const keyScopeSchema = z.enum(["read", "use", "admin"]);
export type KeyScope = z.infer<typeof keyScopeSchema>;

/** `:key` in a path. */
export const keyRefSchema = z.union([agentNameSchema, keyIdSchema], {
  error: "must be a key's name or id",
});

export const keyViewSchema = z.object({
  id: keyIdSchema,
  name: agentNameSchema,
  tenant: z.string(),
  scope: keyScopeSchema,
  /** Names or ids of the only agents it reaches; null: all. A name is of whichever agent has it. */
  agents: z.array(agentRefSchema).nullable(),
  createdAtMs: z.number().int(),
  expiresAtMs: z.number().int().nullable(),
  /** To within a minute; null: never. */
  lastUsedAtMs: z.number().int().nullable(),
});
/** A key without its secret, which nobody has but its holder. */
export type KeyView = z.infer<typeof keyViewSchema>;

/** `POST /v1/keys` */
export const createKeyRequestSchema = z.strictObject({
  name: agentNameSchema,
  scope: keyScopeSchema,
  agents: z.array(agentRefSchema).min(1).max(keyLimits.agentsMax).nullable().default(null),
  /** Absent or null: never. */
  expiresAtMs: givenMomentSchema.nullable().default(null),
});
export type CreateKeyRequest = z.input<typeof createKeyRequestSchema>;

export const createdKeySchema = z.object({
  key: keyViewSchema,
  /** Shown this once: `pdk_`, what names the key, and 256 random bits. */
  token: z.string(),
  /** The same in the form that E2B's clients take: `e2b_` and hexadecimal digits. */
  e2bKey: z.string(),
});
export type CreatedKey = z.infer<typeof createdKeySchema>;

/** `GET /v1/keys`: by name. */
export const keysQuerySchema = z.strictObject({
  after: z.string().max(63).optional(),
  limit: pageLimitSchema,
});
export const keysResponseSchema = z.object({
  keys: z.array(keyViewSchema),
  next: nextPageSchema,
});
export type KeysResponse = z.infer<typeof keysResponseSchema>;

/**
 * The same token in the form that E2B's clients take for a key of theirs: `e2b_` and hexadecimal digits.
 *
 * @param token as `createKey` answers it
 */
export function e2bKeyOf(token: string): string {
  return `e2b_${[...new TextEncoder().encode(token)].map(toHex).join("")}`;
}

/** The token that such a key stands for; empty, which is nobody's, where it is none. */
export function tokenOfE2bKey(key: string): string {
  if (!/^e2b_([0-9a-f]{2}){1,128}$/.test(key)) return "";
  const bytes = key.slice(4).match(/../g) ?? [];
  return String.fromCharCode(...bytes.map((byte) => parseInt(byte, 16)));
}

function toHex(byte: number): string {
  return byte.toString(16).padStart(2, "0");
}
