/** Output of a process, as an attached reader gets it. */
import { expect } from "vitest";
import type { GuestLink, OutputPiece } from "../../../packages/daemon/src/core/ports/guest-link.ts";
import { DEADLINE_MS } from "./rig.ts";

export async function collect(
  link: GuestLink,
  process: number,
  offset: number,
): Promise<OutputPiece[]> {
  const pieces: OutputPiece[] = [];
  for await (const piece of link.attach(process, offset)) pieces.push(piece);
  return pieces;
}

export async function ended(link: GuestLink, process: number): Promise<void> {
  await expect
    .poll(async () => (await link.processes()).find((view) => view.process === process)?.running, {
      timeout: DEADLINE_MS,
    })
    .toBe(false);
}

export async function logged(link: GuestLink, process: number, bytes: number): Promise<void> {
  await expect
    .poll(async () => (await link.processes()).find((view) => view.process === process)?.logEnd, {
      timeout: DEADLINE_MS,
    })
    .toBe(bytes);
}

/** Every byte is either there or said to be cut, once, in order; the exit comes last. */
export function expectNoGap(pieces: readonly OutputPiece[], from: number): void {
  let at = from;
  for (const piece of pieces.filter((each) => each.type !== "exit")) {
    expect(piece.type === "cut" ? piece.from : piece.offset).toBe(at);
    at = piece.type === "cut" ? piece.to : at + piece.bytes.length;
  }
  expect(pieces.findIndex((piece) => piece.type === "exit")).toBe(pieces.length - 1);
}

export function lengthOf(pieces: readonly OutputPiece[]): number {
  let bytes = 0;
  for (const piece of pieces) {
    if (piece.type === "output") bytes += piece.bytes.length;
    if (piece.type === "cut") bytes += piece.to - piece.from;
  }
  return bytes;
}

export function bytesOf(pieces: readonly OutputPiece[], stream?: "stdout" | "stderr"): Buffer {
  const bytes: Uint8Array[] = [];
  for (const piece of pieces) {
    if (piece.type === "output" && (stream ?? piece.stream) === piece.stream)
      bytes.push(piece.bytes);
  }
  return Buffer.concat(bytes);
}

export function text(pieces: readonly OutputPiece[], stream?: "stdout" | "stderr"): string {
  return bytesOf(pieces, stream).toString();
}
