/** Page size for code that runs in worker threads, which load no schemas: held equal by its type. */
import type { Manifest } from "@perdure/protocol";

export const PAGE_BYTES: NonNullable<Manifest["memory"]>["pageBytes"] = 4096;

/** Pages of the largest VM with room to spare: 64 GiB. */
export const PAGE_COUNT_MAX = 2 ** 24;
