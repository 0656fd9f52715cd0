/** What is done to paths inside the VM: folders made, things moved and removed. */
import type { Clock } from "../core/ports/clock.ts";
import { call } from "./call.ts";
import { WRITTEN_DEADLINE_MS } from "./deadline.ts";
import type { Epoch } from "./epoch.ts";
import { FieldWriter } from "./field.ts";
import { operation, tag, type Operation } from "./operation.ts";
import { checkPath, quoted } from "./path.ts";
import { requireVersion } from "./version.ts";

export function makeFolder(
  epoch: Epoch,
  clock: Clock,
  path: string,
  options: { readonly user: string; readonly mode: number; readonly parents: boolean },
): Promise<void> {
  const action = `make the folder ${quoted(path)}`;
  checkPath(action, path);
  const fields = new FieldWriter()
    .string(tag.path, path)
    .string(tag.user, options.user)
    .number(tag.mode, options.mode)
    .flag(tag.parents, options.parents);
  return done(epoch, clock, operation.makeFolder, action, fields);
}

export function movePath(
  epoch: Epoch,
  clock: Clock,
  from: string,
  to: string,
  options: { readonly user: string; readonly replace: boolean },
): Promise<void> {
  const action = `move ${quoted(from)} to ${quoted(to)}`;
  checkPath(action, from);
  checkPath(action, to);
  const fields = new FieldWriter()
    .string(tag.path, from)
    .string(tag.target, to)
    .string(tag.user, options.user)
    .flag(tag.replace, options.replace);
  return done(epoch, clock, operation.movePath, action, fields);
}

export function removePath(
  epoch: Epoch,
  clock: Clock,
  path: string,
  options: { readonly user: string; readonly recursive: boolean },
): Promise<void> {
  const action = `remove ${quoted(path)}`;
  checkPath(action, path);
  const fields = new FieldWriter()
    .string(tag.path, path)
    .string(tag.user, options.user)
    .flag(tag.recursive, options.recursive);
  return done(epoch, clock, operation.removePath, action, fields);
}

/** A folder of a million files takes its time to remove, as do gigabytes that are flushed. */
async function done(
  epoch: Epoch,
  clock: Clock,
  op: Operation,
  action: string,
  fields: FieldWriter,
): Promise<void> {
  requireVersion(epoch, op, action);
  return call(epoch, clock, {
    op,
    action,
    control: false,
    deadlineMs: WRITTEN_DEADLINE_MS,
    fields,
    decode: () => undefined,
  });
}
