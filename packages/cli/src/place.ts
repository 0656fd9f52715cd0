/** Where something is: in an agent, `AGENT:/PATH`, or on this host. */
import { InvalidArgumentError } from "commander";

export interface AgentPlace {
  readonly agent: string;
  /** Absolute. */
  readonly path: string;
}

export interface Place {
  /** Undefined: on this host. */
  readonly agent: string | undefined;
  readonly path: string;
}

/** `AGENT:/PATH`, else a path on this host, or `-`. */
export function parsePlace(text: string): Place {
  const match = /^([a-z0-9][a-z0-9_-]*):(\/.*)$/s.exec(text);
  return match === null
    ? { agent: undefined, path: text }
    : { agent: match[1], path: match[2] ?? "" };
}

/** A place in an agent. @throws `InvalidArgumentError` for anything else: an agent alone is no place */
export function parseAgentPlace(text: string): AgentPlace {
  const { agent, path } = parsePlace(text);
  if (agent !== undefined) return { agent, path };
  throw new InvalidArgumentError("It must be AGENT:/PATH, as in builder:/home/user/notes.");
}

/** Permission bits. */
export function parseMode(text: string): number {
  if (/^[0-7]{3,4}$/.test(text)) return parseInt(text, 8);
  throw new InvalidArgumentError("Write it in octal, as in 644.");
}
