/** How a hostile or broken archive is refused: two codes, so that a caller can tell what to do. */
import { archiveLimits, PerdureError } from "@perdure/protocol";
import type { ArchiveLimit } from "@perdure/protocol";

/** Bounds in force; tests use smaller ones. */
export type Limits = Readonly<Record<ArchiveLimit, number>>;

const shownLength = 200;

/** Something in the archive is not as its format says, or could not be taken safely. */
export function invalid(what: string, cause?: unknown): PerdureError {
  return new PerdureError("image_archive_invalid", `Cannot import the archive: ${what}`, {
    hint: 'Make it anew, as in "docker save IMAGE > FILE" or "skopeo copy … oci-archive:FILE".',
    ...(cause === undefined ? {} : { cause }),
  });
}

/** A bound was passed. @param what subject of the sentence, as in `its layers` */
export function tooLarge(what: string, limit: ArchiveLimit, limits: Limits): PerdureError {
  const max = limits[limit];
  return new PerdureError(
    "too_large",
    `Cannot import the archive: ${what} are more than ${max} (${limit})`,
    { details: { limit, max } },
  );
}

/** Bytes of a name as text for a message. Names are kept as latin1: one character a byte. */
export function shown(name: string): string {
  const text = Buffer.from(name.slice(0, shownLength), "latin1").toString("utf8");
  return JSON.stringify(name.length > shownLength ? `${text}…` : text);
}

/** Text of the archive's JSON for a message. */
export function quoted(text: string): string {
  return JSON.stringify(text.length > shownLength ? `${text.slice(0, shownLength)}…` : text);
}

export const limitsDefault: Limits = archiveLimits;
