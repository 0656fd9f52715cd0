/** Changes of what is in the VM, as they happen. */
import { PerdureError } from "@perdure/protocol";
import type { Clock } from "../core/ports/clock.ts";
import type { FileChange } from "../core/ports/guest-link.ts";
import type { Epoch } from "./epoch.ts";
import { FieldWriter, type Fields } from "./field.ts";
import { operation, tag } from "./operation.ts";
import { checkPath, quoted } from "./path.ts";
import { RecordReader } from "./record-reader.ts";
import { violation } from "./violation.ts";

const kinds = ["created", "changed", "removed", "moved", "attributes"] as const;
/** The watched path, and below it a path that may itself be as long. */
const PATH_BYTES_TOLD_MAX = 2 * 4096;

export function openWatch(
  epoch: () => Epoch,
  clock: Clock,
  path: string,
  options: { readonly user: string; readonly recursive: boolean },
): AsyncIterable<FileChange> {
  const action = `watch ${quoted(path)}`;
  return new RecordReader<FileChange>(epoch, clock, {
    op: operation.watch,
    action,
    fields: () => {
      checkPath(action, path);
      return new FieldWriter()
        .string(tag.path, path)
        .string(tag.user, options.user)
        .flag(tag.recursive, options.recursive);
    },
    decode: decodeChange,
    first: { type: "ready" },
    endless: true,
    interrupted: (cause) =>
      new PerdureError("interrupted", `The watch of ${quoted(path)} ended: ${cause.message}`, {
        hint: "Watch again when the agent is awake, and look at what is there: changes in between are not told.",
        details: { reason: cause.details["reason"] ?? cause.code },
        cause,
      }),
  });
}

function decodeChange(fields: Fields): FileChange {
  const said = fields.string(tag.kind, 16);
  if (said === "missed") return { type: "missed" };
  const type = kinds.find((each) => each === said);
  if (type === undefined) throw violation("a change of an unknown kind");
  const path = decodePath(fields, tag.path);
  if (fields.has(tag.from) !== (type === "moved")) {
    throw violation("what moved comes from somewhere, and nothing else does");
  }
  return type === "moved" ? { type, path, from: decodePath(fields, tag.from) } : { type, path };
}

function decodePath(fields: Fields, which: number): string {
  const path = fields.anyString(which, PATH_BYTES_TOLD_MAX);
  if (!path.startsWith("/") || path.includes("\0")) throw violation("a change of no path");
  return path;
}
