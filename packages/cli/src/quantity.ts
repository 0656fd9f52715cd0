/** Amounts as people write and read them. */
import { InvalidArgumentError } from "commander";
import { durationMs } from "@perdure/sdk";

const sizeUnits = ["B", "KiB", "MiB", "GiB", "TiB"] as const;

/** `512M`, `8G`, `1GiB`, or bytes; units are powers of 1024. */
export function parseSize(text: string): number {
  const match = /^(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:i?B)?|B)?$/i.exec(text.trim());
  if (match?.[1] === undefined) throw new InvalidArgumentError("Write it as 512M or 8G.");
  const exponent = match[2] === undefined ? 0 : "KMGT".indexOf(match[2].toUpperCase()) + 1;
  const bytes = Number(match[1]) * 1024 ** exponent;
  if (!Number.isSafeInteger(bytes))
    throw new InvalidArgumentError("That is no whole number of bytes.");
  return bytes;
}

/** `250ms`, `30s`, `5m`, `2h`, `1d`, or seconds. */
export function parseDuration(text: string): number {
  const ms = durationMs(text);
  if (ms === null) throw new InvalidArgumentError("Write it as 30s, 5m or 2h.");
  return ms;
}

/** What an option says that can be switched off. Not null: to commander that is an option without a value. */
export type OrNever = number | "never";

/** As `parseDuration`, or `never`. */
export function parseDurationOrNever(text: string): OrNever {
  return text.trim() === "never" ? "never" : parseDuration(text);
}

/** As the API takes it. */
export function orNull(value: OrNever): number | null {
  return value === "never" ? null : value;
}

/** A moment as ISO 8601 says it, or a time from now, as in `+2h`; or `never`. */
export function parseMomentOrNever(text: string): OrNever {
  const said = text.trim();
  if (said === "never") return said;
  if (said.startsWith("+")) return Date.now() + parseDuration(said.slice(1));
  const ms = Date.parse(said);
  if (!Number.isFinite(ms) || ms < 0)
    throw new InvalidArgumentError("Write it as 2030-01-31T08:00:00Z, +2h or never.");
  return ms;
}

/** A whole number from `min` on. */
export function parseCount(min: number): (text: string) => number {
  return (text) => {
    if (/^\d{1,15}$/.test(text) && Number(text) >= min) return Number(text);
    throw new InvalidArgumentError(`Write a whole number from ${min} on.`);
  };
}

export function formatSize(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1024 && unit < sizeUnits.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = value >= 100 || Number.isInteger(value) ? 0 : 1;
  return `${value.toFixed(digits)} ${sizeUnits[unit] ?? "B"}`;
}

export function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min`;
  if (ms < 86_400_000) return `${Math.floor(ms / 3_600_000)} h`;
  return `${Math.floor(ms / 86_400_000)} d`;
}
