/** Rules of the way out, as people write and read them; policies from files. */
import { readFile } from "node:fs/promises";
import { text as textOf } from "node:stream/consumers";
import { InvalidArgumentError } from "commander";
import { PerdureError, type EgressRequest, type EgressRule } from "@perdure/sdk";

const PORT_MAX = 65_535;

export type EgressTarget = Pick<EgressRule, "to" | "ports">;

/** `example.com`, `*.example.com:443`, `10.0.0.0/8:80,443`, `[2001:db8::1]:22`, `*`. */
export function parseTarget(text: string): EgressTarget {
  const bracketed = /^\[([^\]]+)\](?::(.+))?$/.exec(text);
  const [, to = "", ports] = bracketed ?? /^([^:]+)(?::(.+))?$/.exec(text) ?? [undefined, text];
  return ports === undefined ? { to } : { to, ports: ports.split(",").map(portFrom) };
}

function portFrom(text: string): number {
  const port = Number(text);
  if (/^[0-9]{1,5}$/.test(text) && port >= 1 && port <= PORT_MAX) return port;
  throw new InvalidArgumentError(`"${text}" is no port.`);
}

/** As `parseTarget` reads it, and what else the rule says. */
export function ruleText({ action, to, ports, methods, private: isPrivate }: EgressRule): string {
  const host = to.includes(":") && ports !== undefined ? `[${to}]` : to;
  const target = ports === undefined ? host : `${host}:${ports.join(",")}`;
  const words = [action, target];
  if (methods !== undefined) words.push(`only ${methods.join(", ")}`);
  if (isPrivate === true) words.push("private addresses, too");
  return words.join("  ");
}

/** The daemon says what is wrong with what is JSON. `-`: stdin. */
export async function readPolicy(path: string): Promise<EgressRequest> {
  try {
    const text = path === "-" ? await textOf(process.stdin) : await readFile(path, "utf8");
    return JSON.parse(text) as EgressRequest;
  } catch (error) {
    const { message } = error as Error;
    throw new PerdureError("bad_request", `Cannot read a policy from "${path}": ${message}`, {
      hint: 'It is JSON, as "perdure egress AGENT --json" prints "rules" and "otherwise"',
    });
  }
}
