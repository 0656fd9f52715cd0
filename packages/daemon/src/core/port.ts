/**
 * TCP ports inside: connections to them, and who may visit them through a preview host.
 *
 * Who connects wakes the agent, and keeps it awake as any call does until the program has taken the connection.
 * After that only what passes counts: a moment of a caller for each piece, so that a connection over which nothing
 * goes lets the agent sleep after its idle time, and ends then. Whoever waits for an answer says so (`attend`).
 */
import { PerdureError } from "@perdure/protocol";
import type { Actor } from "./actor.ts";
import { isPublic } from "./agent.ts";
import type { PortFacts } from "./agent.ts";
import type { AgentConnection, SetPort } from "./command.ts";
import { said, withLink, type Waker } from "./inside.ts";
import { engineLimits } from "./limit.ts";

const TOKEN_BYTES = 24;
/** Ports of one agent that its owner said something of. */
const PORTS_MAX = 256;

export async function connect(actor: Actor, wake: Waker, port: number): Promise<AgentConnection> {
  return withLink(actor, wake, async (link, machine) => {
    const { generation } = actor.agent;
    const inner = await link.connect(port, engineLimits.connectMs);
    const passed = <T>(value: T): T => {
      actor.callers.enter()();
      return value;
    };
    return {
      generation,
      attend: () => actor.callers.enter(),
      read: () => said(actor, machine, inner.read()).then(passed),
      write: async (bytes) => {
        passed(undefined);
        await said(actor, machine, inner.write(bytes));
        passed(undefined);
      },
      end: () => inner.end(),
      close: () => inner.close(),
    };
  });
}

/** Holds the lane. @throws `too_many` */
export async function setPort(
  actor: Actor,
  { port, public: wished, renewToken = false }: SetPort,
): Promise<PortFacts> {
  const { parts, agent } = actor;
  const { ports = {}, name } = agent;
  const before = ports[port];
  if (before === undefined && Object.keys(ports).length >= PORTS_MAX) {
    throw new PerdureError("too_many", `Agent "${name}" has settings for ${PORTS_MAX} ports`);
  }
  const token =
    before === undefined || renewToken
      ? tokenOf(parts.clock.randomBytes(TOKEN_BYTES))
      : before.token;
  const facts = { public: wished ?? isPublic(agent, port), token };
  await actor.save({ ports: { ...ports, [port]: facts } });
  return facts;
}

function tokenOf(bytes: Uint8Array): string {
  return `pt_${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}
