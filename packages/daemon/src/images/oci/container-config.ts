/**
 * The configuration of a container image (config.md of the OCI image specification), and what agents
 * made from it take over.
 */
import { apiLimits } from "@perdure/protocol";
import type { ImageConfig } from "@perdure/protocol";
import { z } from "zod";
import { invalid, quoted } from "./archive-error.ts";

const strings = z.array(z.string()).nullish();
const emptyObjects = z.record(z.string(), z.unknown()).nullish();

export const containerConfigSchema = z.looseObject({
  architecture: z.string(),
  os: z.string(),
  variant: z.string().optional(),
  created: z.string().nullish(),
  config: z
    .looseObject({
      User: z.string().nullish(),
      Env: strings,
      Entrypoint: strings,
      Cmd: strings,
      WorkingDir: z.string().nullish(),
      StopSignal: z.string().nullish(),
      Labels: z.record(z.string(), z.string()).nullish(),
      ExposedPorts: emptyObjects,
      Volumes: emptyObjects,
    })
    .nullish(),
  rootfs: z.looseObject({ type: z.literal("layers"), diff_ids: z.array(z.string()) }),
});
export type ContainerConfig = z.infer<typeof containerConfigSchema>;

/** Half of what an exec may carry: the other half is for who calls it. */
const commandBytesMax = apiLimits.execBytesMax / 2;
const factsMax = 1024;
const factBytesMax = 16 * 1024;

/** @param user who programs run as. @throws `image_archive_invalid` where no program could be run with it */
export function imageConfigOf(
  { config }: ContainerConfig,
  user: string,
  start: boolean,
): ImageConfig {
  const env = environmentOf(config?.Env ?? []);
  const command = [...(config?.Entrypoint ?? []), ...(config?.Cmd ?? [])];
  const variables = Object.entries(env).map(([name, value]) => `${name}=${value}`);
  const cwd = workingFolder(config?.WorkingDir ?? "");
  for (const text of [...command, ...variables, cwd]) {
    if (text.includes("\0"))
      throw invalid(`its configuration holds a NUL character in ${quoted(text)}`);
  }
  const bytes = [...command, ...variables, cwd].reduce(
    (sum, text) => sum + 6 + Buffer.byteLength(text),
    256,
  );
  if (
    command.length > apiLimits.argvMax ||
    variables.length > apiLimits.envMax ||
    bytes > commandBytesMax
  ) {
    throw invalid(
      "the Entrypoint, Cmd and Env of its configuration are more than an exec can take",
    );
  }
  return {
    user,
    cwd,
    env,
    entrypoint: config?.Entrypoint ?? [],
    cmd: config?.Cmd ?? [],
    start,
    stopSignal: config?.StopSignal ?? null,
    labels: Object.fromEntries(bounded(Object.entries(config?.Labels ?? {}), ([, value]) => value)),
    exposedPorts: bounded(Object.keys(config?.ExposedPorts ?? {}), (port) => port),
    volumes: bounded(Object.keys(config?.Volumes ?? {}), (path) => path),
  };
}

/** Of a variable that is set twice the last counts, as where a program looks it up. */
function environmentOf(list: readonly string[]): Record<string, string> {
  const env = new Map<string, string>();
  for (const text of list) {
    const at = text.indexOf("=");
    if (at === 0)
      throw invalid(`its configuration sets a variable without a name: ${quoted(text)}`);
    if (at > 0) env.set(text.slice(0, at), text.slice(at + 1));
  }
  return Object.fromEntries(env);
}

/** Absolute; `/` where none is named. */
function workingFolder(path: string): string {
  const names = path.split("/").filter((name) => name !== "" && name !== ".");
  if (names.includes("..")) throw invalid(`its working folder ${quoted(path)} leads upwards`);
  return `/${names.join("/")}`;
}

/** Facts that nothing acts on are cut rather than refused. */
function bounded<T>(facts: readonly T[], text: (fact: T) => string): T[] {
  return facts.slice(0, factsMax).filter((fact) => Buffer.byteLength(text(fact)) <= factBytesMax);
}
