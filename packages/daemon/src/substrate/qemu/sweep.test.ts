import { expect, test } from "vitest";
import { machineOf } from "./sweep.ts";

const id = "vm_01m8m0yvmk3982wqn8bkmk488e";

test("a machine is known by the exact token after -name", () => {
  expect(machineOf(["qemu", "-name", `perdure-abc-${id}`, "-S"], "abc")).toBe(id);
});

test.each([
  [["qemu", "-name", `perdure-other-${id}`]],
  [["qemu", "-name", `perdure-abc-${id}x`]],
  [["qemu", "-name", `guest=perdure-abc-${id}`]],
  [["qemu", `-name perdure-abc-${id}`]],
  [["grep", `perdure-abc-${id}`]],
  [["qemu", "-name"]],
  [["qemu"]],
  [[]],
  [null],
])("%j is none of ours", (args) => {
  expect(machineOf(args, "abc")).toBeNull();
});

test("a home whose name begins another's does not take its machines", () => {
  expect(machineOf(["qemu", "-name", `perdure-abcd-${id}`], "abc")).toBeNull();
});
