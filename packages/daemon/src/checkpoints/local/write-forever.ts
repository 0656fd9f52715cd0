/** For a test: writes a checkpoint in a process of its own and is killed at one of its steps. */
import { agentIdSchema, checkpointIdSchema } from "@perdure/protocol";
import {
  capture,
  sampleDraft,
  samplePage,
  seeded,
} from "../../../../../test/contract/checkpoint-store-sample.ts";
import { createSystemClock } from "../../clock.ts";
import { openKeyRing } from "../key-ring.ts";
import { openLocalCheckpointStore } from "./local-checkpoint-store.ts";

const [home = "", agentId, parentId, killAt, ownBase] = process.argv.slice(2);
const store = await openLocalCheckpointStore({
  home,
  keyRing: await openKeyRing(home),
  clock: createSystemClock(),
  findTemplateBase: () => Promise.resolve(null),
});
const draw = seeded(5);
const pages = new Map(Array.from({ length: 300 }, (_, i) => [i, samplePage(draw)]));
const parent = checkpointIdSchema.parse(parentId);
await store.write(
  sampleDraft(agentIdSchema.parse(agentId), { parent }),
  {
    base: { kind: "zero" },
    pages: capture(pages),
    devices: new Uint8Array(5000),
    ownBase: ownBase === "true",
  },
  (step) => {
    if (step === killAt) process.kill(process.pid, "SIGKILL");
  },
);
process.exit(1);
