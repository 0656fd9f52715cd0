/**
 * The suite of port CheckpointStore (packages/daemon/src/core/ports/checkpoint-store.ts): it holds
 * for every implementation. Call it from a test file with a way to open an empty store.
 */
import { afterEach, beforeEach, describe } from "vitest";
import { agentTests } from "./checkpoint-store/agent.ts";
import { baseTests } from "./checkpoint-store/base.ts";
import { collectionTests } from "./checkpoint-store/collection.ts";
import { failureTests } from "./checkpoint-store/failure.ts";
import { layerTests } from "./checkpoint-store/layer.ts";
import { lifeTests } from "./checkpoint-store/life.ts";
import { memoryTests } from "./checkpoint-store/memory.ts";
import { packTests } from "./checkpoint-store/pack.ts";
import { CheckpointStoreRig } from "./checkpoint-store/rig.ts";
import type { OpenCheckpointStore } from "./checkpoint-store/subject.ts";
import { verifyTests } from "./checkpoint-store/verify.ts";

export function checkpointStoreContract(
  implementation: string,
  open: () => Promise<OpenCheckpointStore>,
): void {
  describe(`CheckpointStore: ${implementation}`, () => {
    const rig = new CheckpointStoreRig();

    beforeEach(() => rig.open(open));
    afterEach(() => rig.dispose());

    memoryTests(rig);
    packTests(rig);
    baseTests(rig);
    lifeTests(rig);
    failureTests(rig);
    layerTests(rig);
    collectionTests(rig);
    agentTests(rig);
    verifyTests(rig);
  });
}
