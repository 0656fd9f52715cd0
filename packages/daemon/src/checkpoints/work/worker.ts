/** Entry of a worker thread: the jobs by name. Loads no schemas and no adapters. */
import { move, transferableSymbol, valueSymbol } from "piscina";
import { Damage } from "../damage.ts";
import * as base from "./base-file.ts";
import * as map from "./build-map.ts";
import type { Failure, Jobs, Outcome } from "./jobs.ts";
import * as read from "./read-pages.ts";
import * as sealed from "./sealed-file.ts";
import * as store from "./store-pages.ts";
import * as verify from "./verify-pages.ts";

type Job = (input: never) => unknown;
type Answer<J extends Job> = Outcome<ReturnType<J>>;

/** `job` with failures as data, and its result's large buffers handed over instead of copied. */
function guarded<J extends Job>(
  job: J,
  buffers: (result: ReturnType<J>) => readonly ArrayBufferLike[] = () => [],
): (input: Parameters<J>[0]) => Answer<J> {
  return (input) => {
    let value: ReturnType<J>;
    try {
      value = job(input) as ReturnType<J>;
    } catch (error) {
      return { ok: false, failure: failureOf(error) };
    }
    const answer: Answer<J> = { ok: true, value };
    return move({
      [transferableSymbol]: buffers(value),
      [valueSymbol]: answer,
    }) as unknown as Answer<J>;
  };
}

function failureOf(error: unknown): Failure {
  if (error instanceof Damage) {
    return { kind: "damage", part: error.part, check: error.check, message: error.message };
  }
  const { code, message } = error as NodeJS.ErrnoException;
  return { kind: "error", code, message };
}

export const storePages = guarded<Jobs["storePages"]>(store.storePages, (batch) => [
  batch.indexes.buffer,
  batch.storedHash.buffer,
  batch.spent,
]);
export const readPages = guarded<Jobs["readPages"]>(read.readPages, (pages) => [
  pages.indexes.buffer,
  pages.bytes.buffer,
]);
export const verifyPages = guarded<Jobs["verifyPages"]>(verify.verifyPages);
export const buildMap = guarded<Jobs["buildMap"]>(map.buildMap);
export const writeBase = guarded<Jobs["writeBase"]>(base.writeBase, ({ spent }) => spent);
export const digestBlocks = guarded<Jobs["digestBlocks"]>(base.digestBlocks);
export const sealDevices = guarded<Jobs["sealDevices"]>(sealed.sealDevices);
export const openDevices = guarded<Jobs["openDevices"]>(sealed.openDevices);
export const openMap = guarded<Jobs["openMap"]>(sealed.openMap);
