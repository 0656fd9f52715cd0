import { expect, test } from "vitest";
import { argv, deviceDigest, launchArguments, type LaunchPlaces } from "./command-line.ts";

const shape = { memoryBytes: 512 * 1024 * 1024, cpus: 1, diskBytes: 8 * 1024 ** 3 };
const places: LaunchPlaces = {
  name: "perdure-home-vm_1",
  memoryPath: "/data/a,b/base",
  memoryAccess: "private-writable",
  monitorPath: "/run/one/io/qmp",
  linkPath: "/run/one/io/link",
  boot: { kind: "kernel", kernelPath: "/k", initramfsPath: "/i", commandLine: "quiet" },
  incoming: true,
};

const guestSeen = (args: ReturnType<typeof launchArguments>): string[] =>
  argv(args.filter(({ seen }) => seen === "guest"));

test("what the guest sees is the same for spares, templates and cold starts of one shape", () => {
  const seen = guestSeen(launchArguments(shape, "tcg", places));
  const others: LaunchPlaces[] = [
    { ...places, incoming: false },
    { ...places, memoryAccess: "shared", memoryPath: "/elsewhere" },
    { ...places, memoryAccess: "private-read-only" },
    { ...places, name: "perdure-home-vm_2", monitorPath: "/x", linkPath: "/y" },
  ];
  for (const other of others) expect(guestSeen(launchArguments(shape, "kvm", other))).toEqual(seen);
  expect(seen.join(" ")).not.toMatch(/\/|vm_1/);
});

test("where nothing boots there is no initramfs, and the guest sees the same", () => {
  const boot = {
    kind: "kernel",
    kernelPath: "/stub",
    initramfsPath: null,
    commandLine: "",
  } as const;
  const stub = launchArguments(shape, "tcg", { ...places, boot });
  expect(argv(stub)).not.toContain("-initrd");
  expect(argv(stub).join(" ")).toContain("-kernel /stub");
  expect(guestSeen(stub)).toEqual(guestSeen(launchArguments(shape, "tcg", places)));
});

test("every part of a shape changes what the guest sees, or its disk", () => {
  const digest = deviceDigest(shape);
  expect(deviceDigest({ ...shape, cpus: 2 })).not.toBe(digest);
  expect(deviceDigest({ ...shape, memoryBytes: shape.memoryBytes * 2 })).not.toBe(digest);
});

test("the device digest of a released version does not change", () => {
  // Checkpoints name it: a change here makes every older one unusable but for its disk.
  expect(deviceDigest(shape)).toMatchInlineSnapshot(
    `"c63a9d63050110a241c36d78163a97a007cade6a61e716cbd4b11416fc566e9f"`,
  );
});

test("nothing that gives memory back to the host is on the command line", () => {
  const text = argv(launchArguments(shape, "tcg", places)).join(" ");
  expect(text).not.toMatch(/balloon|virtio-mem|free-page|discard-data=on/);
  expect(text).toContain("merge=off");
});

test("commas in paths are doubled where QEMU splits at them", () => {
  expect(argv(launchArguments(shape, "tcg", places)).join(" ")).toContain(
    "mem-path=/data/a,,b/base",
  );
});
