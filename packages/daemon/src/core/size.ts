/**
 * Size: what an agent's machine is, and what its owner wants it to be. Rules over plain data; grow.ts acts.
 *
 * - Memory and CPUs cannot change while memory lives. `shape` has those of the agent's machine, `sizeWanted` those
 *   that its next cold start gives it. A checkpoint has those of the machine it was taken of: who goes back to
 *   one, or forks it, has them too, and what was wanted stays wanted.
 * - A disk only grows. `shape.diskBytes` is what each new layer has, never less than one below; `grownBytes` is
 *   how far the file system inside reaches, where that is less. A manifest has what was reached at its cut, so
 *   that whoever goes on from memory knows what is left to do. What boots grows by itself.
 */
import {
  PerdureError,
  type MachineShape,
  type Pending,
  type SubstrateFacts,
} from "@perdure/protocol";

/** What of a shape is fixed while memory lives. */
export type Size = Pick<MachineShape, "memoryBytes" | "cpus">;

/** Of an agent's row. */
interface Sized {
  readonly shape: MachineShape;
  readonly sizeWanted?: Size | null;
  readonly grownBytes?: number | null;
}

/** What the agent's next cold start gives it. */
export function sizeWanted({ shape, sizeWanted: wanted }: Sized): Size {
  const { memoryBytes, cpus } = wanted ?? shape;
  return { memoryBytes, cpus };
}

/** How much of the disk the file system inside reaches. */
export function grownBytes({ shape, grownBytes: grown }: Sized): number {
  return grown ?? shape.diskBytes;
}

/** What is wanted and not there yet; null: nothing. */
export function pendingOf(agent: Sized): Pending | null {
  const { memoryBytes, cpus } = sizeWanted(agent);
  const { shape } = agent;
  const pending = {
    ...(memoryBytes === shape.memoryBytes ? {} : { memoryBytes }),
    ...(cpus === shape.cpus ? {} : { cpus }),
    ...(grownBytes(agent) === shape.diskBytes ? {} : { diskBytes: shape.diskBytes }),
  };
  return Object.keys(pending).length === 0 ? null : pending;
}

/** The change of the row that another size is. @throws `bad_request` where the disk would shrink */
export function resized(
  agent: Sized & { readonly name: string },
  { memoryBytes, cpus, diskBytes }: Partial<MachineShape>,
): Partial<Sized> {
  const { shape, name } = agent;
  if (diskBytes !== undefined && diskBytes < shape.diskBytes) {
    throw new PerdureError(
      "bad_request",
      `diskBytes: the disk of agent "${name}" has ${shape.diskBytes} bytes, and a disk only grows`,
      { hint: "Copy what is wanted to a new agent with a smaller disk" },
    );
  }
  const before = sizeWanted(agent);
  return {
    ...wish({ memoryBytes: memoryBytes ?? before.memoryBytes, cpus: cpus ?? before.cpus }, shape),
    ...(diskBytes === undefined || diskBytes === shape.diskBytes
      ? {}
      : { shape: { ...shape, diskBytes }, grownBytes: grownBytes(agent) }),
  };
}

/**
 * The change of the row that a let-out with this size is.
 *
 * @param reachedBytes how far the file system reaches that it begins with; null: it was booted
 */
export function begunWith(
  agent: Sized,
  { memoryBytes, cpus }: Size,
  reachedBytes: number | null,
): Required<Sized> {
  const { diskBytes } = agent.shape;
  const shape = { memoryBytes, cpus, diskBytes };
  const isReached = reachedBytes === null || reachedBytes >= diskBytes;
  return { shape, ...wish(sizeWanted(agent), shape), grownBytes: isReached ? null : reachedBytes };
}

/** What a manifest says of the machine. */
export function capturedFacts(agent: Sized, facts: SubstrateFacts): SubstrateFacts {
  return { ...facts, shape: { ...facts.shape, diskBytes: grownBytes(agent) } };
}

function wish(wanted: Size, shape: MachineShape): { readonly sizeWanted: Size | null } {
  const isThere = wanted.memoryBytes === shape.memoryBytes && wanted.cpus === shape.cpus;
  return { sizeWanted: isThere ? null : wanted };
}
