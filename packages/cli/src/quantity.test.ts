import { expect, it } from "vitest";
import { formatDuration, formatSize, parseCount, parseDuration, parseSize } from "./quantity.ts";

it.each([
  ["512M", 512 << 20],
  ["8G", 2 ** 33],
  ["1.5GiB", 1.5 * 2 ** 30],
  ["2 kb", 2048],
  ["4096", 4096],
  ["4096B", 4096],
])("reads size %s", (text, bytes) => {
  expect(parseSize(text)).toBe(bytes);
});

it.each([
  ["250ms", 250],
  ["30s", 30_000],
  ["1.5", 1500],
  ["5m", 300_000],
  ["2h", 7_200_000],
])("reads duration %s", (text, ms) => {
  expect(parseDuration(text)).toBe(ms);
});

it.each(["", "x", "-1", "1e3", "0.0001B", "5 minutes", "NaN"])("refuses %j", (text) => {
  expect(() => parseSize(text)).toThrow();
  expect(() => parseDuration(text)).toThrow();
  expect(() => parseCount(0)(text)).toThrow();
});

it.each([
  [0, "0 B"],
  [4096, "4 KiB"],
  [1_500_000, "1.4 MiB"],
  [2 ** 33, "8 GiB"],
  [2 ** 50, "1024 TiB"],
])("writes %i bytes as %s", (bytes, text) => {
  expect(formatSize(bytes)).toBe(text);
});

it.each([
  [0.4, "0 ms"],
  [85.2, "85 ms"],
  [1500, "1.5 s"],
  [150_000, "2 min"],
  [7_300_000, "2 h"],
  [200_000_000, "2 d"],
])("writes %d ms as %s", (ms, text) => {
  expect(formatDuration(ms)).toBe(text);
});
