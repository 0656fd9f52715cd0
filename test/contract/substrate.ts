/**
 * Contract of the port `Substrate`, for every kind of it. What a subject cannot do it names in `missing`
 * with the reason; the tests of that are skipped with it.
 */
import { afterAll, afterEach, beforeAll, describe } from "vitest";
import { adoptionTests } from "./substrate/adoption.ts";
import { cutTests } from "./substrate/cut.ts";
import { diskTests } from "./substrate/disk.ts";
import { endingTests } from "./substrate/ending.ts";
import { machineTests } from "./substrate/machine.ts";
import { SubstrateRig } from "./substrate/rig.ts";
import { spareTests } from "./substrate/spare.ts";
import type { SubstrateSubject } from "./substrate/subject.ts";
import { wakeTests } from "./substrate/wake.ts";

export function substrateContract(name: string, make: () => Promise<SubstrateSubject>): void {
  describe(`substrate contract: ${name}`, () => {
    const rig = new SubstrateRig();

    beforeAll(() => rig.open(make));
    afterEach(() => rig.endMachines());
    afterAll(() => rig.close());

    wakeTests(rig);
    cutTests(rig);
    diskTests(rig);
    machineTests(rig);
    endingTests(rig);
    adoptionTests(rig);
    spareTests(rig);
  });
}
