/** Machines in stock: handed out once, left alone on close, none from a base that is missing. */
import { PAGE_BYTES, type Digest } from "@perdure/protocol";
import { expect, test } from "vitest";
import { refuses } from "../refusal.ts";
import { pagesOf } from "./cut-bytes.ts";
import type { SubstrateRig } from "./rig.ts";

export function spareTests(rig: SubstrateRig): void {
  test("spares are handed out once, and dead ones never", async (context) => {
    rig.needs(context, "crash");
    const other = await rig.subject.open();
    other.keepSpares(rig.spec, 2);
    const taken = [];
    for (let i = 0; i < 4; i++) taken.push(rig.mine(await other.takeSpare(rig.spec)).record.id);
    expect(new Set(taken).size).toBe(4);
    const [last] = [rig.mine(await other.takeSpare(rig.spec))];
    rig.subject.crash(last.record);
    const next = rig.mine(await other.takeSpare(rig.spec));
    expect(await next.isRunning()).toBe(false);
    other.keepSpares(rig.spec, 0);
    await other.close();
  });

  test("closing leaves machines in use alone", async () => {
    const other = await rig.subject.open();
    other.keepSpares(rig.spec, 1);
    const machine = rig.mine(await other.takeSpare(rig.spec));
    await other.close();
    expect(await machine.isRunning()).toBe(false);
    await machine.attachDisk({ imagePath: null, layerPaths: [await rig.subject.newLayer()] });
    expect(await pagesOf(machine, Uint32Array.of(0))).toHaveLength(PAGE_BYTES);
  });

  test("a base that does not exist is refused and leaves nothing", async () => {
    const base = { kind: "template", digest: "1".repeat(64) as Digest } as const;
    const path = await rig.subject.newBasePath();
    await refuses(
      rig.substrate.takeSpare({ ...rig.spec, base: { ...base, path } }),
      "machine_start_failed",
    );
    expect(await rig.substrate.sweep(rig.machines.map(({ record }) => record.id))).toBe(0);
  });
}
