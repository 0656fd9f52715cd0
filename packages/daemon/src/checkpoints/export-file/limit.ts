/** Bounds of export files, by name. They hold before anything is allocated or written. */
import { GIB, MIB, agentLimits } from "@perdure/protocol";

export const exportLimits = {
  headerBytesMax: 8 * MIB,
  checkpointsMax: 256,
  layersPerCheckpointMax: 32,
  /** Device state and page map, sealed: a little more than what they are when opened. */
  devicesBytesMax: 16 * MIB + 64 * 1024,
  sealSlackBytes: 64 * 1024,
  packSlackBytes: MIB,
  /** A layer is at most the disk and its own tables. */
  layerBytesMax: agentLimits.diskBytesMax + 16 * GIB,
  imageFileBytesMax: 16 * GIB,
  imageDescriptionBytesMax: 4 * MIB,
} as const;
