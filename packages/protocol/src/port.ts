/**
 * TCP ports inside an agent: what is said over a connection to one, and how its preview host is called.
 * docs/guides/ports.md tells it to people.
 */
import { z } from "zod";
import { errorBodySchema } from "./api.ts";
import { attachLimits } from "./attach.ts";
import { agentIdSchema, type AgentId } from "./id.ts";
import { flag } from "./query.ts";

export const portLimits = {
  portMax: 65_535,
  /** Bytes that either side of a connection may have sent and the other not taken. */
  windowBytes: 262_144,
  /** Of a message of a client, bytes. */
  messageBytesMax: attachLimits.messageBytesMax,
} as const;

export const portSchema = z.number().int().min(1).max(portLimits.portMax);

/** `:port` in a path. */
export const portRefSchema = z
  .string()
  .regex(/^[1-9][0-9]{0,4}$/, "must be a port")
  .transform(Number)
  .pipe(portSchema);

/** The subprotocol of a connection; an API key may be beside it, as with `ATTACH_PROTOCOL`. */
export const CONNECT_PROTOCOL = "perdure.connect.v1";

/** `GET …/ports/:port/connect?wakes=` */
export const connectQuerySchema = z.strictObject({
  /** `false`: an agent that is asleep is not woken, but answered as `agent_state`. */
  wakes: flag("true"),
});

/**
 * Text messages of both sides; binary ones are the bytes. What was sent and is not given back by `credit` is at
 * most `windowBytes`, either way.
 */
const sharedMessages = [
  /** Nothing more is sent; the other direction goes on. */
  z.object({ type: z.literal("end") }),
  /** So many bytes were taken. */
  z.object({
    type: z.literal("credit"),
    bytes: z.number().int().min(1).max(portLimits.windowBytes),
  }),
] as const;

export const connectRequestSchema = z.discriminatedUnion("type", [...sharedMessages]);
export type ConnectRequest = z.infer<typeof connectRequestSchema>;

export const connectEventSchema = z.discriminatedUnion("type", [
  /** The first: a program has taken the connection. */
  z.object({ type: z.literal("connected"), generation: z.number().int() }),
  ...sharedMessages,
  /** The last, unless both sides have ended. */
  z.object({ type: z.literal("error"), error: errorBodySchema }),
]);
export type ConnectEvent = z.infer<typeof connectEventSchema>;

/** `PUT /v1/agents/:agent/ports/:port` */
export const portRequestSchema = z.strictObject({
  /** Whether everybody may visit it through its preview host. Absent: as it is, private to begin with. */
  public: z.boolean().optional(),
  /** Makes another token; the one of before lets nobody in any more. */
  renewToken: z.boolean().optional(),
});
export type PortRequest = z.input<typeof portRequestSchema>;

export const portViewSchema = z.object({
  agent: agentIdSchema,
  port: portSchema,
  public: z.boolean(),
  /** Lets whoever has it visit the preview host, as an API key with scope `use` does. */
  token: z.string(),
  /** Of the preview host; null: the daemon does not listen on TCP. */
  url: z.string().nullable(),
});
export type PortView = z.infer<typeof portViewSchema>;

const ID_PREFIX = "ag_";
const label = /^([1-9][0-9]{0,4})-([0-9a-z]{26})$/;

/** The first label of the preview host of a port: `8000-01h8…`. */
export function portLabel(agent: AgentId, port: number): string {
  return `${port}-${agent.slice(ID_PREFIX.length)}`;
}

/** Which port of which agent a host names, as `portLabel` makes it; null: none. */
export function portOfLabel(text: string): { agent: AgentId; port: number } | null {
  const [, digits = "", id = ""] = label.exec(text.toLowerCase()) ?? [];
  const agent = agentIdSchema.safeParse(ID_PREFIX + id);
  const port = portSchema.safeParse(Number(digits));
  return agent.success && port.success ? { agent: agent.data, port: port.data } : null;
}
