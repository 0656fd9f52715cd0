/** The event log: what became of agents, in the order in which it was recorded. */
import { z } from "zod";
import { pageLimitSchema } from "./api.ts";
import { agentIdSchema } from "./id.ts";
import { flag } from "./query.ts";

/** Bounds of the event log. */
export const eventLimits = {
  /** Older ones, and the oldest beyond this many, are forgotten; who comes too late is told. */
  keptMs: 7 * 24 * 3_600_000,
  keptMax: 100_000,
  /** Readers that follow, at once. */
  readersMax: 256,
  /** A reader who hears nothing for several of these has lost the daemon. */
  heartbeatMs: 15_000,
} as const;

export const eventKinds = [
  "created",
  "state",
  "let-out",
  "paused",
  "resumed",
  "failed",
  "quarantined",
  "checkpoint",
  "kept",
  "dropped",
  "configured",
  "removed",
] as const;
/** What may happen to an agent. */
export const eventKindSchema = z.enum(eventKinds);
export type EventKind = z.infer<typeof eventKindSchema>;

/** A number in the log: ascending, over all agents, never used twice. */
const eventIdSchema = z.number().int().nonnegative();

export const agentEventSchema = z.object({
  id: eventIdSchema,
  atMs: z.number().int(),
  kind: eventKindSchema,
  agent: agentIdSchema,
  name: z.string(),
  /** Of the agent when it happened. */
  generation: z.number().int().nonnegative(),
  /** What more there is to say, by kind. */
  data: z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()])),
});
/** One change of one agent. */
export type AgentEvent = z.infer<typeof agentEventSchema>;

export const eventGapSchema = z.object({
  kind: z.literal("gap"),
  /** First and last of those that are forgotten; not each need be of the agents that were asked for. */
  from: eventIdSchema,
  to: eventIdSchema,
});
/** Events that the reader came too late for. */
export type EventGap = z.infer<typeof eventGapSchema>;

/** `GET /v1/events` streams these; an event's `id:` line is where to go on, by `Last-Event-ID` or `after`. */
export const followedEventSchema = z.union([agentEventSchema, eventGapSchema]);
export type FollowedEvent = z.infer<typeof followedEventSchema>;

const position = z.string().regex(/^[0-9]{1,15}$/, "must be the id of an event");

/** `GET /v1/events` */
export const eventsQuerySchema = z.strictObject({
  /** The newest event that is known. Absent: what is recorded from now on, or, of a page, the oldest kept. */
  after: position.transform(Number).optional(),
  /** Name or id; events of removed agents, too. */
  agent: z.string().min(1).max(63).optional(),
  /** One kind, or several with commas between. */
  kind: z
    .string()
    .regex(/^[a-z-]+(,[a-z-]+)*$/)
    .transform((kinds) => kinds.split(","))
    .pipe(z.array(eventKindSchema))
    .optional(),
  /** `false`: one page as JSON instead of a stream. */
  follow: flag("true"),
  /** Of a page. */
  limit: pageLimitSchema,
});

/** Sent by a browser that connects again; wins over `after`. */
export const eventsHeadersSchema = z.object({
  "last-event-id": position.transform(Number).optional(),
});

/** `GET /v1/events?follow=false` */
export const eventPageSchema = z.object({
  events: z.array(agentEventSchema),
  gap: eventGapSchema.nullable(),
  /** Pass as `after` for the next page; null on the last. */
  next: eventIdSchema.nullable(),
  /** Where the log has been read up to: pass as `after` to go on from here later. */
  position: eventIdSchema,
});
export type EventPage = z.infer<typeof eventPageSchema>;
