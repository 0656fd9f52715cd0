/**
 * CPU and device state without memory. Saved by the command that Xen's tools use, which every build of
 * QEMU has; loaded as an incoming migration that happens to hold no RAM.
 *
 * - I1 Memory is in place before device state: loading CPU state is what flushes translated code.
 * - I2 `live` is false: otherwise the disk is handed over and going on costs time per layer.
 * - I3 The file was written by a process that is not trusted: size-limited, not followed.
 */
import { connect } from "node:net";
import { rm } from "node:fs/promises";
import { PerdureError } from "@perdure/protocol";
import type { Clock } from "../../core/ports/clock.ts";
import { withDeadline } from "./deadline.ts";
import { qemuLimits } from "./limit.ts";
import { noSpaceAt } from "./no-space.ts";
import type { QmpClient } from "./qmp.ts";
import type { RunFolder } from "./run-folder.ts";

/** While the CPUs are stopped. @throws `disk_full` */
export async function saveDeviceState(
  qmp: QmpClient,
  folder: RunFolder,
): Promise<Uint8Array<ArrayBuffer>> {
  try {
    await qmp.execute("xen-save-devices-state", { filename: folder.devicesPath, live: false });
  } catch (error) {
    // QEMU says no more than that it could not write.
    const full = await noSpaceAt(folder.path, error, "save the state of a VM's devices");
    await rm(folder.devicesPath, { force: true });
    throw full ?? error;
  }
  return folder.takeFile(folder.devicesPath, qemuLimits.deviceStateBytes);
}

/** Makes a process that was started to wait for state listen for it. Once, before `loadDeviceState`. */
export async function expectDeviceState(qmp: QmpClient, folder: RunFolder): Promise<void> {
  await qmp.execute("migrate-set-capabilities", {
    capabilities: [{ capability: "events", state: true }],
  });
  await qmp.execute("migrate-incoming", { uri: `unix:${folder.incomingPath}` });
}

/** Into a process that listens for it. Once. */
export async function loadDeviceState(
  qmp: QmpClient,
  folder: RunFolder,
  state: Uint8Array,
  clock: Clock,
): Promise<void> {
  const loaded = Promise.withResolvers<undefined>();
  const undo = qmp.onEvent(({ name, data }) => {
    if (name !== "MIGRATION") return;
    if (data.status === "completed") loaded.resolve(undefined);
    if (data.status === "failed") loaded.reject(refused("QEMU reports failure"));
  });
  // QEMU ends itself when it cannot make sense of the state.
  void qmp.ended.then(({ detail }) => loaded.reject(refused(detail)));
  loaded.promise.catch(() => undefined);
  const sending = send(folder.incomingPath, state);
  sending.sent.catch(() => undefined);
  try {
    // It may say that it has loaded what it never read.
    const all = loaded.promise.then(() => sending.sent);
    await withDeadline(clock, qemuLimits.loadMs, "Loading device state", all);
  } finally {
    undo();
    sending.stop();
    await rm(folder.incomingPath, { force: true });
  }
}

function send(path: string, state: Uint8Array): { sent: Promise<void>; stop: () => void } {
  const socket = connect(path);
  const sent = new Promise<void>((resolve, reject) => {
    socket.on("error", (cause) => reject(refused("nobody takes it", cause)));
    socket.once("connect", () => socket.end(state));
    socket.once("finish", resolve);
    socket.once("close", () => reject(refused("nobody takes all of it")));
  });
  return { sent, stop: () => socket.destroy() };
}

function refused(reason: string, cause?: Error): PerdureError {
  return new PerdureError("machine_failed", `QEMU did not take the device state: ${reason}`, {
    hint: "The state belongs to another machine type or is damaged; a cold start needs none.",
    cause,
  });
}
