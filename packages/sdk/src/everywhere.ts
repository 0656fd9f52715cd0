/** What the client is made of wherever it runs. */
export { durationMs, eventKinds, PerdureError } from "@perdure/protocol";
export type {
  AgentEvent,
  AgentState,
  AgentView,
  CheckpointView,
  ConfigureRequest,
  ConnectionView,
  CreatedKey,
  CreateKeyRequest,
  CreateRequest,
  DoctorReport,
  EgressPolicy,
  EgressRequest,
  EgressRule,
  EgressView,
  ErrorBody,
  ErrorCode,
  EventGap,
  EventKind,
  EventPage,
  Exit,
  Freed,
  Health,
  ImportResponse,
  Hold,
  HoldRequest,
  HotRequest,
  HotView,
  ImageConfig,
  ImageView,
  KeyScope,
  KeyView,
  LetOut,
  ListResponse,
  Pending,
  PortRequest,
  PortView,
  ProcessView,
  TerminalSize,
  RecipeInput,
  VerifiedCheckpoint,
  VerifiedPart,
  WakeReport,
  Why,
} from "@perdure/protocol";
export { Attachment } from "./attachment.ts";
export type { AttachOptions } from "./attachment.ts";
export * from "./client.ts";
export type { RunResult } from "./collected-output.ts";
export type { EventOptions } from "./event-calls.ts";
export type { FileOptions, FolderEntry, PathFacts } from "./file-calls.ts";
export type { FileFacts, FileRead } from "./file-read.ts";
export type { FileEvent } from "./file-watch.ts";
export type { ImageCalls, ImageWorkOptions, ImportOptions } from "./image-calls.ts";
export { goesOn } from "./output.ts";
export type { Output } from "./output.ts";
export type { ConnectOptions } from "./port-calls.ts";
export { PortConnection } from "./port-connection.ts";
export type { ExecOptions, TerminalOptions } from "./process-calls.ts";
export { ProcessHandle } from "./process-handle.ts";
export type { SignalName } from "./signal.ts";
export type { ExportedFile, ExportOptions } from "./store-calls.ts";
export type { CallOptions } from "./transport.ts";
export type { Verification } from "./verify-events.ts";
