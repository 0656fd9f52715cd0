import { expect, test } from "vitest";
import { moduleName, moduleOrder } from "./module-order.ts";

const dependencies = `kernel/drivers/virtio/virtio.ko:
kernel/drivers/virtio/virtio_ring.ko.xz: kernel/drivers/virtio/virtio.ko
kernel/drivers/virtio/virtio-pci.ko.xz: kernel/drivers/virtio/virtio_ring.ko.xz kernel/drivers/virtio/virtio.ko
kernel/drivers/block/virtio_blk.ko: kernel/drivers/virtio/virtio_ring.ko.xz kernel/drivers/virtio/virtio.ko
`;
const builtin = "kernel/fs/ext4/ext4.ko\nkernel/drivers/char/hw-random.ko\n";

test("module names do not depend on dashes or compression", () => {
  expect(moduleName("kernel/a/virtio-pci.ko.xz")).toBe("virtio_pci");
  expect(moduleName("virtio_blk.ko")).toBe("virtio_blk");
});

test("modules come after everything that they need, each once", () => {
  const order = moduleOrder(["virtio_pci", "virtio_blk"], dependencies, builtin);
  expect(order.map(moduleName)).toEqual(["virtio", "virtio_ring", "virtio_pci", "virtio_blk"]);
});

test("what the kernel has built in needs no file", () => {
  expect(moduleOrder(["ext4", "hw_random"], dependencies, builtin)).toEqual([]);
});

test("a module that the kernel lacks is an error", () => {
  expect(() => moduleOrder(["virtio_gpu"], dependencies, builtin)).toThrow(
    'The kernel has no module "virtio_gpu"',
  );
});
