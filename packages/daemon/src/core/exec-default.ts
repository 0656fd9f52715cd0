/**
 * What a call into an agent takes from the agent's image where it does not say it itself: the program, its
 * user, folder and variables. Decided before the agent is woken for it.
 */
import { PerdureError, type ImageConfig } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import type { Agent } from "./agent.ts";
import type { Parts } from "./parts.ts";
import type { GuestExec } from "./ports/guest-link.ts";

/** An exec as it was asked for. */
export interface ExecWish extends Omit<GuestExec, "argv" | "user"> {
  /** Absent or empty: the image's program. */
  readonly argv?: readonly string[];
  readonly user?: string;
}

/** Of images that say nothing: those that are built here have it. */
const userDefault = "user";

/** Images do not change, so each agent's is looked up once. */
const known = new WeakMap<Actor, Promise<ImageConfig | null>>();

export function imageConfigOf(actor: Actor): Promise<ImageConfig | null> {
  const found = known.get(actor) ?? readConfig(actor.parts, actor.agent);
  known.set(actor, found);
  return found;
}

/** An image that is gone says nothing: whatever runs of it can still be talked to. */
async function readConfig({ images }: Parts, { image }: Agent): Promise<ImageConfig | null> {
  try {
    return (await images.resolve(image.id)).config;
  } catch (error) {
    if (error instanceof PerdureError && error.code === "image_not_found") return null;
    throw error;
  }
}

/** Who a call is made for. */
export async function userOf(actor: Actor, wished: string | undefined): Promise<string> {
  return wished ?? defaultUser(await imageConfigOf(actor));
}

export function defaultUser(config: ImageConfig | null): string {
  return config?.user ?? userDefault;
}

/** The exec that is carried out. @throws `bad_request` where neither the call nor the image names a program */
export async function execOf(actor: Actor, wish: ExecWish): Promise<GuestExec> {
  return withDefaults(actor.agent, wish, await imageConfigOf(actor));
}

export function withDefaults(
  { name, image, env }: Pick<Agent, "name" | "image" | "env">,
  { argv = [], user, ...wish }: ExecWish,
  config: ImageConfig | null,
): GuestExec {
  const program = argv.length > 0 ? argv : programOf(config);
  if (program.length === 0) {
    throw new PerdureError(
      "bad_request",
      `Cannot run a program in agent "${name}": none is named, and image "${image.name}" has none of its own`,
      { hint: "Name the program to run." },
    );
  }
  return {
    ...(config?.cwd == null ? {} : { cwd: config.cwd }),
    ...wish,
    argv: program,
    user: user ?? defaultUser(config),
    env: { ...config?.env, ...env, ...wish.env },
  };
}

/** What the image itself runs; empty where it names nothing. */
export function programOf(config: ImageConfig | null): readonly string[] {
  return config === null ? [] : [...config.entrypoint, ...config.cmd];
}
