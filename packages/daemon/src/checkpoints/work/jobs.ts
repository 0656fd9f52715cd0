/** The jobs that worker threads do, by name, and the shape in which a failure comes back. */
import type { Check, Part } from "../damage.ts";
import type { digestBlocks, writeBase } from "./base-file.ts";
import type { buildMap } from "./build-map.ts";
import type { readPages } from "./read-pages.ts";
import type { openDevices, openMap, sealDevices } from "./sealed-file.ts";
import type { storePages } from "./store-pages.ts";
import type { verifyPages } from "./verify-pages.ts";

export interface Jobs {
  storePages: typeof storePages;
  readPages: typeof readPages;
  verifyPages: typeof verifyPages;
  buildMap: typeof buildMap;
  writeBase: typeof writeBase;
  digestBlocks: typeof digestBlocks;
  sealDevices: typeof sealDevices;
  openDevices: typeof openDevices;
  openMap: typeof openMap;
}

/** Errors lose their class between threads, so they travel as data. */
export type Failure =
  | {
      readonly kind: "damage";
      readonly part: Part;
      readonly check: Check;
      readonly message: string;
    }
  | { readonly kind: "error"; readonly code: string | undefined; readonly message: string };

export type Outcome<T> =
  { readonly ok: true; readonly value: T } | { readonly ok: false; readonly failure: Failure };
