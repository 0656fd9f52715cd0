/** Folders, paths and watches of the fake guest. */
import { FieldWriter, type Fields } from "../field.ts";
import { status, tag } from "../operation.ts";
import { uidOf, type FakeChange } from "./fake-file.ts";
import type { FakeStream } from "./fake-port.ts";
import { record, RecordQueue } from "./fake-record.ts";
import type { FakeInside } from "./fake-state.ts";
import { factFields } from "./fake-user-operation.ts";

type Run = (guest: FakeInside, stream: FakeStream, fields: Fields) => void;

const changing =
  (work: (guest: FakeInside, fields: Fields, path: string, uid: number) => void): Run =>
  (guest, stream, fields) => {
    work(guest, fields, pathOf(fields, tag.path), uidOf(fields.string(tag.user)));
    guest.state.fileWrites++;
    stream.respond(status.ok);
  };

export const makeFolder = changing((guest, fields, path, uid) =>
  guest.files.makeFolder(
    path,
    uid,
    fields.number(tag.mode),
    fields.flag(tag.parents),
    guest.nowMs(),
  ),
);

export const movePath = changing((guest, fields, path, uid) =>
  guest.files.move(path, pathOf(fields, tag.target), uid, fields.flag(tag.replace)),
);

export const removePath = changing((guest, fields, path, uid) =>
  guest.files.remove(path, uid, fields.flag(tag.recursive)),
);

/** Without a slash at the end. */
function pathOf(fields: Fields, which: number): string {
  const path = fields.string(which);
  return path.length > 1 ? path.replace(/\/+$/, "") : path;
}

export function listFolder(guest: FakeInside, stream: FakeStream, fields: Fields): void {
  const entries = guest.files.list(pathOf(fields, tag.path), uidOf(fields.string(tag.user)));
  const bytes = entries.map(([name, file]) => {
    const isLink = file.kind === "link";
    const size = isLink ? file.content.length : Buffer.byteLength(file.content, "base64");
    return record(
      new FieldWriter()
        .string(tag.name, name)
        .add(factFields(file, size))
        .string(tag.target, isLink ? file.content : undefined),
    );
  });
  stream.respond(status.ok, new FieldWriter(), false);
  const queue = new RecordQueue(stream);
  for (const each of bytes) queue.push(each);
  queue.end();
}

export function watch(guest: FakeInside, stream: FakeStream, fields: Fields): void {
  const root = pathOf(fields, tag.path);
  const recursive = fields.flag(tag.recursive);
  const isFolder = guest.files.stat(root, uidOf(fields.string(tag.user))).kind === "directory";
  const prefix = root === "/" ? "/" : `${root}/`;
  const seen = (path: string): boolean =>
    path === root ||
    (path.startsWith(prefix) && (recursive || !path.slice(prefix.length).includes("/")));
  const queue = new RecordQueue(stream);
  const watcher = (change: FakeChange): void => {
    const told = asSeen(change, seen);
    if (told === undefined) return;
    queue.push(
      record(
        new FieldWriter()
          .string(tag.kind, told.type)
          .string(tag.path, told.path)
          .string(tag.from, told.from),
      ),
    );
    if (!isFolder || told.type !== "removed" || told.path !== root) return;
    guest.files.watchers.delete(watcher);
    queue.end();
  };
  guest.files.watchers.add(watcher);
  stream.onClose = () => guest.files.watchers.delete(watcher);
  stream.respond(status.ok, new FieldWriter(), false);
}

/** A move into or out of what is watched is something else there; undefined: nothing. */
function asSeen(change: FakeChange, seen: (path: string) => boolean): FakeChange | undefined {
  const { type, path, from } = change;
  if (type !== "moved" || from === undefined) return seen(path) ? change : undefined;
  if (seen(path)) return seen(from) ? change : { type: "created", path };
  return seen(from) ? { type: "removed", path: from } : undefined;
}
