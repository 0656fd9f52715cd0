/** The TypeScript client of Perdure. */
export { PerdureError } from "@perdure/protocol";
export type {
  AgentState,
  AgentView,
  CheckpointView,
  CreateRequest,
  DoctorReport,
  ErrorCode,
  Exit,
  Health,
  LetOut,
  ListResponse,
  ProcessView,
  WakeReport,
} from "@perdure/protocol";
export * from "./client.ts";
export type { RunResult } from "./collected-output.ts";
export type { FileFacts, FileRead } from "./file-read.ts";
export { goesOn } from "./output.ts";
export type { Output } from "./output.ts";
export * from "./paths.ts";
export { ProcessHandle } from "./process-handle.ts";
export type { SignalName } from "./process-handle.ts";
export type { CallOptions } from "./transport.ts";
