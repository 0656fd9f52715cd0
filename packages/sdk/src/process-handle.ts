/** A program in an agent, as a handle. Making one does no I/O: a process is named by its number. */
import { apiLimits, pathOf, PerdureError, routes, takesKey } from "@perdure/protocol";
import type { ApiRoute, Exit, TerminalSize } from "@perdure/protocol";
import { Attachment } from "./attachment.ts";
import type { AttachOptions } from "./attachment.ts";
import { goesOn, readOutput } from "./output.ts";
import type { Output } from "./output.ts";
import { signals } from "./signal.ts";
import type { SignalName } from "./signal.ts";
import type { CallOptions, Transport } from "./transport.ts";

export class ProcessHandle {
  /** As it was given: name or id. */
  readonly agent: string;
  /** Names the process for as long as the agent keeps its memory. */
  readonly process: number;
  readonly #transport: Transport;

  constructor(transport: Transport, agent: string, process: number) {
    this.agent = agent;
    this.process = process;
    this.#transport = transport;
  }

  /**
   * Output from byte `offset` on, then `exit` or `interrupted`. Leaving the loop detaches; the process
   * goes on. What is not consumed is not read: a process that writes faster waits.
   *
   * @param offset counts the bytes of stdout and stderr together; default 0, the beginning
   * @throws `process_not_found`, `agent_not_found`, `interrupted` where the connection breaks off
   * @example
   * const process = await perdure.exec("a1", ["echo", "hello"]);
   * for await (const event of process.output()) {
   *   if (event.type === "output") console.log(event.stream, new TextDecoder().decode(event.bytes));
   * }
   */
  async *output(options: CallOptions & { readonly offset?: number } = {}): AsyncGenerator<Output> {
    const { bytes } = await this.#transport.stream({
      ...this.#to(routes.output),
      query: { offset: options.offset },
      signal: options.signal,
    });
    yield* readOutput(bytes);
  }

  /**
   * Waits for the process to end. Its output is read and dropped.
   *
   * @throws `interrupted` where the agent sleeps or stops first; the process may go on at the next wake
   * @example
   * const process = await perdure.exec("a1", ["true"]);
   * const { exitCode } = await process.wait();
   */
  async wait(options: CallOptions = {}): Promise<Exit> {
    for await (const event of this.output(options)) {
      if (event.type === "exit") {
        return { exitCode: event.exitCode, signal: event.signal, timedOut: event.timedOut };
      }
      if (event.type === "interrupted") throw interruptedError(this, event);
    }
    throw new PerdureError("internal", "The output ended without an exit");
  }

  /**
   * Writes to the process's stdin as the guest takes it. The process must have been started with
   * `stdin: true`.
   *
   * @param end closes stdin after these bytes
   * @throws `stdin_closed`, `process_not_found`
   * @example
   * const process = await perdure.exec("a1", ["cat"], { stdin: true });
   * await process.writeStdin("hello\n", { end: true });
   */
  async writeStdin(
    data: string | Uint8Array,
    options: CallOptions & { readonly end?: boolean } = {},
  ): Promise<void> {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    const step = apiLimits.stdinChunkBytesMax;
    let at = 0;
    do {
      const last = at + step >= bytes.length;
      await this.#transport.empty({
        ...this.#to(routes.stdin),
        query: { end: options.end === true && last },
        body: bytes.subarray(at, at + step),
        signal: options.signal,
      });
      at += step;
    } while (at < bytes.length);
  }

  /**
   * Sends a signal to the process and everything it started. `SIGKILL` resolves when all are gone.
   *
   * @param tree false: the process alone
   * @throws `process_not_found`, `process_ended`
   * @example
   * const process = await perdure.exec("a1", ["sleep", "60"]);
   * await process.signal("SIGTERM");
   */
  async signal(
    signal: number | SignalName = "SIGTERM",
    options: CallOptions & { readonly tree?: boolean } = {},
  ): Promise<void> {
    await this.#transport.empty({
      ...this.#to(routes.signal),
      json: {
        signal: typeof signal === "number" ? signal : signals[signal],
        tree: options.tree ?? true,
      },
      signal: options.signal,
    });
  }

  /**
   * Attaches over one WebSocket: output, input, signals and, where the program has a terminal, its size.
   * `output`, `writeStdin`, `signal` and `resize` do the same without one.
   *
   * @throws `interrupted` where no WebSocket can be made; the loop over it throws `process_not_found` and its like
   * @example
   * const process = await perdure.exec("a1", ["sh", "-c", "read line; echo got $line"], { stdin: true });
   * await using attached = await process.attach();
   * await attached.write("it\n");
   * for await (const event of attached) {
   *   if (event.type === "output") console.log(new TextDecoder().decode(event.bytes));
   * }
   */
  attach({ offset = 0, wakes, hangsUp, signal }: AttachOptions = {}): Promise<Attachment> {
    const { path } = this.#to(routes.attach);
    return Attachment.open(this.#transport, this, {
      path,
      query: { offset, wakes, hangsUp },
      offset,
      signal,
    });
  }

  /**
   * Gives the terminal that the process runs on another size.
   *
   * @throws `not_supported` where it has no terminal, `process_ended`, `process_not_found`
   * @example
   * const terminal = { rows: 24, columns: 80 };
   * const process = await perdure.exec("a1", ["cat"], { terminal });
   * await process.resize({ rows: 50, columns: 132 });
   */
  async resize(size: TerminalSize, options: CallOptions = {}): Promise<void> {
    const { rows, columns } = size;
    await this.#transport.empty({
      ...this.#to(routes.resize),
      json: { rows, columns },
      signal: options.signal,
    });
  }

  #to(route: ApiRoute) {
    const { agent, process } = this;
    const path = pathOf(route, { agent, process });
    return { method: route.method, path, once: takesKey(route) };
  }
}

export function interruptedError(
  { agent, process }: ProcessHandle,
  event: Output & { type: "interrupted" },
): PerdureError {
  const { reason, offset } = event;
  return new PerdureError(
    "interrupted",
    `Process ${process} of agent "${agent}" is out of reach: ${reason}`,
    {
      hint: goesOn(event)
        ? `Attach again from offset ${offset} when it is awake.`
        : "Look at what runs in the agent now: its programs may have ended.",
      details: { reason, offset },
    },
  );
}
