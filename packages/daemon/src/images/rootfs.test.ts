import { expect, test } from "vitest";
import { installedPackages } from "./rootfs.ts";

test("only installed packages are listed, by name", () => {
  const status = `Package: zlib1g
Status: install ok installed
Version: 1:1.2.13
Description: compression
 Version: not this one

Package: gone
Status: deinstall ok config-files
Version: 1

Package: bash
Status: install ok installed
Version: 5.2
`;
  expect(installedPackages(status)).toEqual([
    { name: "bash", version: "5.2" },
    { name: "zlib1g", version: "1:1.2.13" },
  ]);
});
