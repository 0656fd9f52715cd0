/** PostgreSQL in a folder of its own. Debian's `postgresql`. */
import { execFileSync, spawn } from "node:child_process";
import type { ChildProcess } from "node:child_process";
import { chownSync, mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";

/** It must not run as root: as the account that the package makes. */
const account = "postgres";

export function startDatabase(folder: string, port: number): ChildProcess {
  const versions = readdirSync("/usr/lib/postgresql").sort((a, b) => Number(a) - Number(b));
  const bin = join("/usr/lib/postgresql", versions.at(-1) ?? "", "bin");
  const data = join(folder, "data");
  const id = (flag: string): number =>
    Number(execFileSync("id", [flag, account], { encoding: "utf8" }));
  const [uid, gid] = [id("-u"), id("-g")];
  mkdirSync(data, { mode: 0o700 });
  chownSync(data, uid, gid);
  const as = {
    uid,
    gid,
    cwd: "/",
    stdio: ["ignore", "ignore", "pipe"] as ["ignore", "ignore", "pipe"],
  };
  execFileSync(join(bin, "initdb"), ["--auth=trust", "--username=shop", "--no-sync", data], as);
  return spawn(
    join(bin, "postgres"),
    ["-D", data, "-p", String(port), "-h", "127.0.0.1", "-k", ""],
    as,
  );
}
