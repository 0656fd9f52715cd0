/**
 * Connections to programs inside that stay open between requests. They are filed by agent, generation and port: one
 * of a generation that is over serves nobody.
 */
import { Agent } from "node:http";
import type { ClientRequest } from "node:http";
import type { Duplex } from "node:stream";
import type { AgentId } from "@perdure/protocol";
import type { Commands } from "../../core/command.ts";
import { PortDuplex } from "./port-duplex.ts";

/** Of one port, and how long each: programs close theirs after five seconds, as Node's servers do. */
const IDLE_MAX = 8;
const IDLE_MS = 4_000;

export interface PortKey {
  readonly tenant: string;
  readonly agent: AgentId;
  /** As it is when the request comes. */
  readonly generation: number;
  readonly port: number;
  /** Whether the agent is woken for it. */
  readonly wakes: boolean;
  /** Names a request that gets a connection of its own, which serves no other. */
  readonly own?: number;
}

/** Options of a request through the pool. */
export interface PortRequest {
  readonly portKey: PortKey;
}

export class PortPool extends Agent {
  readonly #commands: Pick<Commands, "connect">;
  readonly #waiting = new WeakMap<Duplex, () => void>();
  readonly #generations = new WeakMap<Duplex, number>();

  constructor(commands: Pick<Commands, "connect">) {
    super({ keepAlive: true, maxFreeSockets: IDLE_MAX });
    this.#commands = commands;
  }

  override getName(options?: object): string {
    const { portKey: key } = options as PortRequest;
    return `${key.agent}:${key.generation}:${key.port}:${key.own ?? ""}`;
  }

  override createConnection(
    options: object,
    done?: (error: Error | null, stream: Duplex) => void,
  ): null {
    const { portKey: key } = options as PortRequest;
    this.#commands.connect(key).then(
      (connection) => {
        const duplex = new PortDuplex(connection);
        if (key.own === undefined) this.#generations.set(duplex, key.generation);
        done?.(null, duplex);
      },
      (error: unknown) => (done as ((error: unknown) => void) | undefined)?.(error),
    );
    return null;
  }

  /** Whether it waits for the next request. */
  override keepSocketAlive(socket: Duplex): boolean {
    if (!(socket instanceof PortDuplex)) return false;
    // One whose agent was woken for it lies under the generation of before.
    if (this.#generations.get(socket) !== socket.connection.generation) return false;
    // What a program says unasked is no answer to whoever comes next.
    const leave = (): void => void socket.destroy();
    const late = setTimeout(leave, IDLE_MS);
    late.unref();
    socket.on("data", leave);
    this.#waiting.set(socket, () => {
      clearTimeout(late);
      socket.off("data", leave);
    });
    return true;
  }

  override reuseSocket(socket: Duplex, request: ClientRequest): void {
    this.#waiting.get(socket)?.();
    request.reusedSocket = true;
  }
}
