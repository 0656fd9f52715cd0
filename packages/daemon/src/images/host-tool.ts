/** Which of the host's programs making an image needs, and which Debian package has each. */
import { constants } from "node:fs";
import { access } from "node:fs/promises";
import path from "node:path";
import { PerdureError } from "@perdure/protocol";
import { cleanEnvironment } from "./tool-process.ts";

const packages = {
  debugfs: "e2fsprogs",
  dumpe2fs: "e2fsprogs",
  e2fsck: "e2fsprogs",
  fakeroot: "fakeroot",
  mke2fs: "e2fsprogs",
  mmdebstrap: "mmdebstrap",
  setfattr: "attr",
  tar: "tar",
} as const;

export type HostTool = keyof typeof packages;

/** @throws `host_not_ready` with the names of what is missing */
export async function assertTools(tools: readonly HostTool[]): Promise<void> {
  const folders = (cleanEnvironment()["PATH"] ?? "").split(":");
  const isThere = async (tool: HostTool): Promise<boolean> => {
    const looks = folders.map((folder) => access(path.join(folder, tool), constants.X_OK));
    return Promise.any(looks).then(
      () => true,
      () => false,
    );
  };
  const there = await Promise.all(tools.map(isThere));
  const missing = tools.filter((_, index) => there[index] === false);
  if (missing.length === 0) return;
  const wanted = [...new Set(missing.map((tool) => packages[tool]))].join(" ");
  throw new PerdureError(
    "host_not_ready",
    `Cannot make an image: this host lacks ${missing.map((tool) => `"${tool}"`).join(", ")}`,
    { hint: `Install ${wanted}, as in "apt-get install ${wanted}".` },
  );
}
