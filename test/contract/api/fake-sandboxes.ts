/** For tests: the fake server on TCP, whose agents are found by their ids, as sandboxes are. */
import { join } from "node:path";
import type { AgentId } from "@perdure/protocol";
import type { Agent } from "../../../packages/daemon/src/core/agent.ts";
import type { StateStore } from "../../../packages/daemon/src/core/ports/state-store.ts";
import { createMemoryStateStore } from "../memory-state-store.ts";
import { sampleAgent } from "../state-store-sample.ts";
import { createFakeCommands } from "./fake-commands.ts";
import { openFakeServer } from "./fake-server.ts";
import type { FakeServer } from "./fake-server.ts";

export interface FakeSandboxes extends FakeServer {
  readonly url: string;
}

const passwd = "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/bash\n";

export async function openFakeSandboxes(folder: string): Promise<FakeSandboxes> {
  const commands = createFakeCommands();
  const store = createMemoryStateStore();
  const rows = async (): Promise<Agent[]> => {
    const { agents } = await commands.list({ tenant: "default", limit: 1000 });
    return agents.map(({ id, name, state, generation, wakeOnTraffic, portsPublic }) =>
      sampleAgent(name, { id, state, generation, wakeOnTraffic, portsPublic }),
    );
  };
  const state: StateStore = {
    ...store,
    agent: async (id) => (await rows()).find((row) => row.id === id) ?? null,
    agentIds: async (after, limit) => {
      const ids = (await rows()).map(({ id }) => id).sort();
      return ids.filter((id: AgentId) => id > (after ?? "")).slice(0, limit);
    },
  };
  const execute = commands.execute.bind(commands);
  // Each has what every image has.
  commands.execute = async (command) => {
    const result = await execute(command);
    if (command.kind === "create" || command.kind === "fork") {
      for (const { id } of await rows()) {
        await write(id, "/etc/passwd", passwd);
        await write(id, "/etc/group", "root:x:0:\nuser:x:1000:\n");
      }
    }
    return result;
  };
  const write = (agent: AgentId, path: string, text: string): Promise<void> => {
    const bytes = Buffer.from(text);
    const file = { tenant: "default", agent, path, user: "0", mode: 0o644, size: bytes.length };
    return commands.writeFile(file, inOne(bytes));
  };
  const tcp = { host: "127.0.0.1", port: 0, tls: null, corsOrigins: [] };
  const fake = await openFakeServer(join(folder, "run.sock"), folder, { commands, state, tcp });
  return { ...fake, url: fake.server.url ?? "" };
}

async function* inOne(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  await Promise.resolve();
  yield bytes;
}
