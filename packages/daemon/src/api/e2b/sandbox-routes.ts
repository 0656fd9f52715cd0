/** Sandboxes: made, looked at, put to sleep, woken and removed as the agents that they are. */
import { agentLimits, PerdureError } from "@perdure/protocol";
import type { AgentView, EgressPolicy } from "@perdure/protocol";
import { z } from "zod";
import type { OwnerWish } from "../../core/command.ts";
import { untilGone } from "../gone.ts";
import { assertMayName, mayUse } from "../principal.ts";
import type { Principal } from "../principal.ts";
import {
  connectSchema,
  createSchema,
  forkSchema,
  pauseSchema,
  refreshSchema,
  refuseUnsupported,
  refuseNetwork,
  timeoutSchema,
  updateNetworkSchema,
} from "./e2b-request.ts";
import type { E2bContext } from "./e2b-context.ts";
import { findSandbox } from "./e2b-serve.ts";
import type { E2bServe } from "./e2b-serve.ts";
import { e2bRoutes } from "./e2b-table.ts";
import { toPerdureError } from "../error-answer.ts";
import { egressOfCreate, egressOfUpdate } from "./network.ts";
import { checkpointOf, findSnapshot } from "./sandbox-id.ts";
import { BASE_TEMPLATE, sandboxDetail, sandboxOf, sandboxState } from "./sandbox-view.ts";
import { measure } from "./usage.ts";

/** What `base` is, and what our own API takes where no image is named. */
const IMAGE_DEFAULT = "debian";

/** Agents must have names, and nobody has asked for one: these are as good as the ids. */
function newName(context: E2bContext): string {
  return `sandbox-${Buffer.from(context.clock.randomBytes(8)).toString("hex")}`;
}

export function imageOf(templateId: string): string {
  const name = templateId.replace(/:default$/, "");
  return name === BASE_TEMPLATE ? IMAGE_DEFAULT : name;
}

export function sandboxRoutes(serve: E2bServe, context: E2bContext): void {
  const { commands, clock, closing, reach } = context;

  for (const route of [e2bRoutes.create, e2bRoutes.createV2]) {
    serve(route, { body: createSchema }, async ({ principal, body, reply }) => {
      refuseUnsupported(body);
      const name = newName(context);
      assertMayName(principal, [name]);
      const wanted = {
        principal,
        name,
        templateId: body.templateID,
        owner: ownerOf(body),
        egress: egressOfCreate(body, route === e2bRoutes.createV2),
      };
      const view = await createSandbox(wanted);
      void reply.code(201);
      return sandboxOf(view, context);
    });
  }

  async function createSandbox(wanted: {
    principal: Principal;
    name: string;
    templateId: string;
    owner: OwnerWish;
    egress: EgressPolicy;
  }): Promise<AgentView> {
    const { principal, name, templateId, owner, egress } = wanted;
    const { tenant } = principal;
    if (checkpointOf(templateId) !== null) {
      const { agent, checkpoint } = await findSnapshot(commands, tenant, templateId);
      await reach.assert(principal, agent.id);
      const from = { tenant, agent: agent.id, checkpoint: checkpoint.id };
      const what = { ...from, names: [name], owner, egress };
      const [fork] = await commands.execute({ kind: "fork", ...what });
      if (fork === undefined) throw new PerdureError("internal", "A fork was made of nothing");
      return fork.agent;
    }
    return commands.execute({
      kind: "create",
      tenant,
      name,
      image: imageOf(templateId),
      shape: {
        memoryBytes: agentLimits.memoryBytesDefault,
        cpus: agentLimits.cpusDefault,
        diskBytes: agentLimits.diskBytesDefault,
      },
      onCrash: "checkpoint",
      // It runs until its end, whatever it does.
      idleAfterMs: null,
      egress,
      ...owner,
    });
  }

  serve(e2bRoutes.show, {}, async ({ principal, tenant, agent }) => {
    const target = { tenant, agent: await agent() };
    const [view, egress] = await Promise.all([commands.show(target), commands.egress(target)]);
    return sandboxDetail({ view, egress }, context, mayUse(principal, "use"));
  });

  serve(e2bRoutes.kill, {}, async ({ tenant, agent }) => {
    await commands.execute({ kind: "remove", tenant, agent: await agent() });
  });

  for (const route of [e2bRoutes.connect, e2bRoutes.connectV2, e2bRoutes.resume]) {
    serve(route, { body: connectSchema }, async ({ tenant, agent, body, reply }) => {
      const target = { tenant, agent: await agent() };
      const before = await commands.show(target);
      const isRunning = sandboxState(before) === "running";
      if (isRunning && route === e2bRoutes.resume) {
        throw new PerdureError("agent_state", "The sandbox is running already");
      }
      await comeUp(before, body.memory ?? true);
      const view = await extend(target, body.timeout);
      void reply.code(isRunning ? 200 : 201);
      return sandboxOf(view, context);
    });
  }

  /** Whatever it rests in. What runs is left as it is. */
  async function comeUp({ tenant, id, state }: AgentView, memory: boolean): Promise<void> {
    const target = { tenant, agent: id };
    if (state === "stopped" || state === "stopping") {
      await commands.execute({ kind: "start", ...target });
    } else if (!memory && state === "asleep") {
      await commands.execute({ kind: "recover", ...target, from: "disk" });
    } else {
      await commands.execute({ kind: "wake", ...target });
    }
  }

  /** An agent without an end keeps none: that is later than any. */
  async function extend(target: { tenant: string; agent: string }, timeoutS: number) {
    const view = await commands.show(target);
    if (view.end === null) return view;
    const end = { afterMs: lengthMs(timeoutS), extend: true, once: true };
    return commands.execute({ kind: "configure", ...target, end });
  }

  serve(e2bRoutes.pause, { body: pauseSchema }, async ({ tenant, agent, body }) => {
    const target = { tenant, agent: await agent() };
    const view = await commands.show(target);
    if (["asleep", "stopped"].includes(view.state)) {
      throw new PerdureError("agent_state", "The sandbox is paused already");
    }
    await commands.execute(
      body.memory === false
        ? { kind: "stop", ...target }
        : { kind: "sleep", ...target, wakesForWaits: false, cancellable: false },
    );
  });

  serve(e2bRoutes.timeout, { body: timeoutSchema }, async ({ tenant, agent, body }) => {
    const end = { afterMs: lengthMs(body.timeout), once: true };
    await commands.execute({ kind: "configure", tenant, agent: await agent(), end });
  });

  serve(e2bRoutes.refresh, { body: refreshSchema }, async ({ tenant, agent, body }) => {
    if (body.duration !== undefined) {
      await extend({ tenant, agent: await agent() }, body.duration);
    }
  });

  serve(e2bRoutes.fork, { body: forkSchema }, async ({ principal, tenant, agent, body, reply }) => {
    const names = Array.from({ length: body.count }, () => newName(context));
    assertMayName(principal, names);
    const target = { tenant, agent: await agent() };
    const { end, portsPublic } = await commands.show(target);
    const owner = {
      portsPublic,
      end: { afterMs: lengthMs(body.timeout), then: end?.then ?? "remove" } as const,
    };
    void reply.code(201);
    try {
      const forks = await commands.execute({ kind: "fork", ...target, names, owner });
      return forks.map((fork) => ({ sandbox: sandboxOf(fork.agent, context) }));
    } catch (raised) {
      const error = toPerdureError(raised);
      if (error.code === "agent_not_found") throw error;
      const { status: code, message } = error;
      return names.map(() => ({ error: { code, message } }));
    }
  });

  serve(e2bRoutes.network, { body: updateNetworkSchema }, async ({ tenant, agent, body }) => {
    const target = { tenant, agent: await agent() };
    refuseNetwork(body);
    const policy = egressOfUpdate(body, await commands.egress(target));
    await commands.execute({ kind: "set-egress", ...target, policy });
  });

  serve(e2bRoutes.metrics, {}, async ({ tenant, agent, reply }) => {
    const view = await commands.show({ tenant, agent: await agent() });
    const metric = await measuredNow(view, untilGone(reply, closing));
    return metric === null ? [] : [metric];
  });

  serve(e2bRoutes.manyMetrics, { query: manySchema }, async (call) => {
    const { principal, query, reply } = call;
    const signal = untilGone(reply, closing);
    const found = query.sandbox_ids.map(async (sandboxId): Promise<[string, unknown]> => {
      const view = await findSandbox(context, principal, sandboxId);
      return [sandboxId, view === null ? null : await measuredNow(view, signal)];
    });
    const all = (await Promise.all(found)).filter(([, metric]) => metric !== null);
    return { sandboxes: Object.fromEntries(all) };
  });

  async function measuredNow(view: AgentView, signal: AbortSignal) {
    if (view.state !== "awake") return null;
    try {
      return await measure(commands, clock, view, signal);
    } catch (raised) {
      if (toPerdureError(raised).code === "agent_state") return null;
      throw raised;
    }
  }
}

const manySchema = z.looseObject({
  sandbox_ids: z
    .union([z.string(), z.array(z.string())])
    .transform((given) => (typeof given === "string" ? given.split(",") : given))
    .pipe(z.array(z.string()).max(100)),
});

function ownerOf(body: z.output<typeof createSchema>): OwnerWish {
  const { timeout, autoPause, autoResume, metadata, envVars, network } = body;
  return {
    end: { afterMs: lengthMs(timeout), then: autoPause === true ? "sleep" : "remove" },
    wakeOnTraffic: autoResume?.enabled ?? false,
    portsPublic: network?.allowPublicTraffic ?? true,
    labels: metadata ?? {},
    env: envVars ?? {},
  };
}

/** An end at once is one that is due. */
function lengthMs(seconds: number): number {
  return Math.max(1, seconds * 1000);
}
