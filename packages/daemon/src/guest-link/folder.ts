/** What is in a folder inside the VM, entry by entry. */
import type { Clock } from "../core/ports/clock.ts";
import type { FolderEntry } from "../core/ports/guest-link.ts";
import type { Epoch } from "./epoch.ts";
import { FieldWriter, type Fields } from "./field.ts";
import { decodeFacts } from "./file.ts";
import { operation, tag } from "./operation.ts";
import { checkPath, PATH_BYTES_MAX, quoted } from "./path.ts";
import { RecordReader } from "./record-reader.ts";
import { violation } from "./violation.ts";

const NAME_BYTES_MAX = 255;

export function openFolder(
  epoch: () => Epoch,
  clock: Clock,
  path: string,
  user: string,
): AsyncIterable<FolderEntry> {
  const action = `list ${quoted(path)}`;
  return new RecordReader(epoch, clock, {
    op: operation.listFolder,
    action,
    fields: () => {
      checkPath(action, path);
      return new FieldWriter().string(tag.path, path).string(tag.user, user);
    },
    decode: decodeEntry,
    endless: false,
  });
}

/** A name is one component: whoever joins it to the folder's path stays in the folder. */
function decodeEntry(fields: Fields): FolderEntry {
  const name = fields.anyString(tag.name, NAME_BYTES_MAX);
  if (name === "" || name === "." || name === ".." || /[/\0]/.test(name)) {
    throw violation("an entry of a folder without a name of its own");
  }
  const facts = decodeFacts(fields);
  const linkTarget = fields.has(tag.target) ? fields.anyString(tag.target, PATH_BYTES_MAX) : null;
  if ((facts.kind === "link") !== (linkTarget !== null)) {
    throw violation("an entry is either a link and leads somewhere, or neither");
  }
  return { name, ...facts, linkTarget };
}
