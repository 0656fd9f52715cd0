/**
 * Who programs run as in agents of an image: what its configuration names, else its account "user", else
 * root. Looked up in its own account files, so that an import fails rather than every program later.
 */
import { invalid, quoted } from "./archive-error.ts";

const idMax = 2 ** 32 - 2;

/** @param passwd text of /etc/passwd, or null; `group` likewise. @throws `image_archive_invalid` */
export function runUser(named: string, passwd: string | null, group: string | null): string {
  if (named === "") return hasAccount(passwd, "user") ? "user" : "root";
  const [user = "", groupName, ...more] = named.split(":");
  const isOne = more.length === 0 && named.length <= 64 && user !== "" && groupName !== "";
  if (!isOne || /[^\x21-\x7e]/.test(named)) {
    throw invalid(`its configuration runs programs as ${quoted(named)}, which is no user`);
  }
  if (!isId(user) && user !== "root" && !hasAccount(passwd, user)) {
    throw invalid(`its configuration runs programs as ${quoted(user)}, whom its /etc/passwd lacks`);
  }
  if (groupName !== undefined && !isId(groupName) && !hasAccount(group, groupName)) {
    throw invalid(
      `its configuration runs programs as group ${quoted(groupName)}, which its /etc/group lacks`,
    );
  }
  return named;
}

function isId(text: string): boolean {
  return /^\d{1,10}$/.test(text) && Number(text) <= idMax;
}

function hasAccount(file: string | null, name: string): boolean {
  return file?.split("\n").some((line) => line.startsWith(`${name}:`)) === true;
}
