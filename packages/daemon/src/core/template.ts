/**
 * Templates: the checkpoint of a booted image at one size. Built once per (image, size, VMM), then
 * creating an agent is waking a fork of it.
 */
import {
  digestOf,
  PerdureError,
  type Digest,
  type ErrorCode,
  type MachineShape,
  type SubstrateFacts,
} from "@perdure/protocol";
import { bootFiles } from "./actor.ts";
import { defaultUser } from "./exec-default.ts";
import { guestClockFacts } from "./guest-clock.ts";
import { engineLimits } from "./limit.ts";
import type { Parts } from "./parts.ts";
import type { GuestLink } from "./ports/guest-link.ts";
import type { Image } from "./ports/image-source.ts";
import type { Machine } from "./ports/substrate.ts";
import type { Template } from "./ports/template-store.ts";

const noDigest = "0".repeat(64) as Digest;

/**
 * Programs that a template has run once, so that the pages they fill are in the shared base and not in
 * every agent's delta. What the image lacks is skipped.
 */
const warmUp: readonly (readonly string[])[] = [
  ["/bin/bash", "-lc", "true"],
  ["/usr/bin/python3", "-c", "import json, sqlite3, subprocess, socket, http.server"],
  ["/usr/bin/git", "--version"],
  ["/usr/bin/curl", "--version"],
  ["/usr/bin/sqlite3", "-version"],
];

const cannotRun = new Set<ErrorCode>(["exec_failed", "user_not_found"]);

/** Where a template's disk begins: its layer id is used by every agent made from it. */
export async function ensureTemplate(
  parts: Parts,
  tenant: string,
  image: Image,
  shape: MachineShape,
): Promise<Template> {
  const boot = await bootFiles(parts, image.id);
  const base = { kind: "template", digest: noDigest, path: "" } as const;
  const facts = await parts.substrate.facts({ tenant, shape, base, boot });
  // What may differ from one boot of the host to the next, or with an update of the VMM, is left out.
  const { tscKhz: _tsc, vmmVersion: _version, ...lasting } = facts;
  const key = digestOf({ version: 2, image: image.id, substrate: lasting }) as Digest;
  const found = await parts.templates.open(tenant, key);
  if (found !== null) return found;
  await parts.templates.build(
    key,
    image.rootfs === null ? null : shape.diskBytes,
    async (draft) => {
      parts.log("info", "Booting the image into a template", { image: image.name });
      const chain = {
        imagePath: image.rootfs?.path ?? null,
        layerPaths: draft.layer === null ? [] : [draft.layer.path],
      };
      const machine = await parts.substrate.bootTemplate(
        { tenant, shape, boot },
        chain,
        draft.basePath,
      );
      try {
        const { devices, ...clock } = await bootAndFreeze(parts, machine, image);
        return { substrate: { ...facts, ...clock }, devices };
      } catch (error) {
        const tail = await machine.consoleTail().catch(() => "");
        throw new PerdureError(
          "template_failed",
          `Image "${image.name}" could not be booted into a template: ${PerdureError.from(error).message}`,
          { cause: error, ...(tail === "" ? {} : { details: { console: tail.slice(-1024) } }) },
        );
      } finally {
        await machine.kill();
      }
    },
    image.id,
  );
  const built = await parts.templates.open(tenant, key);
  if (built === null) {
    throw new PerdureError("template_failed", `Template ${key} vanished after it was built`);
  }
  return built;
}

async function bootAndFreeze(
  parts: Parts,
  machine: Machine,
  image: Image,
): Promise<Pick<SubstrateFacts, "guestClock"> & { readonly devices: Uint8Array }> {
  const link = await parts.links.connect(machine.linkPath);
  try {
    await machine.run();
    await link.sync(0, engineLimits.bootMs);
    await link.setClock(engineLimits.clockMs);
    if (image.rootfs !== null) await warm(link, image);
    const clock = await guestClockFacts(link);
    // Nobody's: so that the files are there, and an agent's own has only to be written over it.
    await link.setIdentity(await parts.identities.make("template"));
    await link.flush(engineLimits.flushMs);
    await link.freeze(engineLimits.freezeMs);
    await link.flush(engineLimits.flushFrozenMs);
    await machine.pause();
    return { devices: await machine.saveDevices(), ...clock };
  } finally {
    link.close("the template is done");
  }
}

/** What of an image is run here may never end, so it is given a time. */
async function warm(link: GuestLink, { config }: Image): Promise<void> {
  const user = defaultUser(config);
  link.letOut();
  for (const argv of warmUp) {
    try {
      const { process } = await link.exec({
        ...{ argv, user, timeoutMs: engineLimits.warmUpMs, stdin: false },
        env: config?.env ?? {},
      });
      for await (const piece of link.attach(process, 0)) if (piece.type === "exit") break;
      await link.forget(process);
    } catch (error) {
      if (!(error instanceof PerdureError) || !cannotRun.has(error.code)) throw error;
    }
  }
}
