import { expect, it } from "vitest";
import { accountsOf, groupsOf } from "./account.ts";
import { permissionsOf } from "./entry.ts";
import { absolutePath } from "./inside-path.ts";

it("reads accounts and groups, and leaves out lines that are none", () => {
  const passwd =
    "root:x:0:0:root:/root:/bin/sh\n# no\nodd:x:none::\nuser:x:1000:1000::home:/bin/sh\n\n";
  expect(accountsOf(passwd)).toEqual([
    { name: "root", uid: 0, home: "/root" },
    { name: "user", uid: 1000, home: "/" },
  ]);
  expect([...groupsOf("root:x:0:\nstaff:x:50:a,b\nbad\n:x:1:\n")]).toEqual([
    [0, "root"],
    [50, "staff"],
  ]);
});

it("begins paths in the home of the user, and leads none out of the root", () => {
  const at = (sent: string) => absolutePath(sent, { name: "u", uid: 1, home: "/home/u" });
  expect(["", ".", "~", "~/", "~/a", "a/../b/", "/a//b/./c/..", "../../../.."].map(at)).toEqual([
    "/home/u",
    "/home/u",
    "/home/u",
    "/home/u",
    "/home/u/a",
    "/home/u/b",
    "/a/b",
    "/",
  ]);
  for (const bad of ["~other/x", "a\0b", "x".repeat(5000)]) expect(() => at(bad)).toThrow();
});

it("writes permissions as ls does", () => {
  const said = (kind: "file" | "directory" | "link", mode: number) => permissionsOf({ kind, mode });
  expect(said("file", 0o644)).toBe("-rw-r--r--");
  expect(said("directory", 0o1777)).toBe("drwxrwxrwt");
  expect(said("file", 0o6755)).toBe("-rwsr-sr-x");
  expect(said("file", 0o7644)).toBe("-rwSr-Sr-T");
  expect(said("link", 0o777)).toBe("lrwxrwxrwx");
});
