/** Which kernel modules to load, and in which order, from the index that depmod writes. */
import { PerdureError } from "@perdure/protocol";

/** `drivers/virtio/virtio_pci.ko.xz` → `virtio_pci`; the kernel takes - and _ in names as one. */
export function moduleName(file: string): string {
  return (file.split("/").at(-1) ?? "").replace(/\.ko(\.\w+)?$/, "").replaceAll("-", "_");
}

/**
 * Files of `wanted` and of everything they need, dependencies first. Names that `builtin` lists need
 * no file.
 *
 * @param dependencies text of `modules.dep`
 * @param builtin text of `modules.builtin`
 */
export function moduleOrder(
  wanted: readonly string[],
  dependencies: string,
  builtin: string,
): string[] {
  const needs = new Map<string, string[]>();
  const fileOf = new Map<string, string>();
  for (const line of dependencies.split("\n")) {
    const [file, rest] = line.split(":");
    if (file === undefined || rest === undefined) continue;
    fileOf.set(moduleName(file), file);
    needs.set(
      file,
      rest.split(/\s+/).filter((word) => word !== ""),
    );
  }
  const builtins = new Set(builtin.split("\n").map(moduleName));
  const order: string[] = [];
  const add = (file: string): void => {
    if (order.includes(file)) return;
    for (const other of needs.get(file) ?? []) add(other);
    order.push(file);
  };
  for (const name of wanted) {
    const file = fileOf.get(name);
    if (file !== undefined) add(file);
    else if (!builtins.has(name)) {
      throw new PerdureError("image_build_failed", `The kernel has no module "${name}"`);
    }
  }
  return order;
}
