/**
 * Identifiers. Each kind is a branded string with its own prefix, so that no function takes one for
 * another and a reader of a log knows what an id names. The random part is 26 characters of
 * Crockford base 32: 48 bits of time, then 80 random bits (the ULID layout), so ids sort by age.
 */
import { z } from "zod";

const alphabet = "0123456789abcdefghjkmnpqrstvwxyz";
const body = "[0-9a-hjkmnp-tv-z]{26}";

export const agentIdSchema = z
  .string()
  .regex(new RegExp(`^ag_${body}$`))
  .brand<"AgentId">();
export const checkpointIdSchema = z
  .string()
  .regex(new RegExp(`^cp_${body}$`))
  .brand<"CheckpointId">();
export const machineIdSchema = z
  .string()
  .regex(new RegExp(`^vm_${body}$`))
  .brand<"MachineId">();
export const layerIdSchema = z
  .string()
  .regex(new RegExp(`^dl_${body}$`))
  .brand<"LayerId">();
export const packIdSchema = z
  .string()
  .regex(new RegExp(`^pk_${body}$`))
  .brand<"PackId">();
export const keyIdSchema = z
  .string()
  .regex(new RegExp(`^ak_${body}$`))
  .brand<"KeyId">();
export const connectionIdSchema = z
  .string()
  .regex(new RegExp(`^cn_${body}$`))
  .brand<"ConnectionId">();
/** SHA-256, 64 lower-case hex digits. */
export const digestSchema = z
  .string()
  .regex(/^[0-9a-f]{64}$/)
  .brand<"Digest">();

/** An agent: one persistent computer. */
export type AgentId = z.infer<typeof agentIdSchema>;
/** An immutable consistent cut. */
export type CheckpointId = z.infer<typeof checkpointIdSchema>;
/** One VM process, spare or in use; never used again for another. */
export type MachineId = z.infer<typeof machineIdSchema>;
/** One disk layer file. */
export type LayerId = z.infer<typeof layerIdSchema>;
/** One file of stored memory pages. */
export type PackId = z.infer<typeof packIdSchema>;
/** One API key. */
export type KeyId = z.infer<typeof keyIdSchema>;
/** One connection from an agent to elsewhere. */
export type ConnectionId = z.infer<typeof connectionIdSchema>;
export type Digest = z.infer<typeof digestSchema>;

interface Prefixes {
  ag: AgentId;
  cp: CheckpointId;
  vm: MachineId;
  dl: LayerId;
  pk: PackId;
  ak: KeyId;
  cn: ConnectionId;
}

/**
 * A new id of the kind named by `prefix`.
 *
 * @param nowMs milliseconds since the epoch, 0 to 2^48 − 1
 * @param random ten random bytes
 */
export function makeId<P extends keyof Prefixes>(
  prefix: P,
  nowMs: number,
  random: Uint8Array,
): Prefixes[P] {
  if (random.length < 10) throw new RangeError("An id needs ten random bytes");
  let time = Math.trunc(nowMs);
  let head = "";
  for (let i = 0; i < 10; i++) {
    head = alphabet.charAt(time % 32) + head;
    time = Math.floor(time / 32);
  }
  let bits = 0;
  let held = 0;
  let tail = "";
  for (const byte of random.subarray(0, 10)) {
    bits = (bits << 8) | byte;
    held += 8;
    while (held >= 5) {
      held -= 5;
      tail += alphabet.charAt((bits >> held) & 31);
    }
    bits &= (1 << held) - 1;
  }
  return `${prefix}_${head}${tail}` as Prefixes[P];
}
