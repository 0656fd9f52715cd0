/** Programs in an agent. Part of `Perdure`; examples run as they stand. */
import { apiLimits, PerdureError, routes } from "@perdure/protocol";
import type { ExecRequest, ProcessView } from "@perdure/protocol";
import type { Attachment, AttachOptions } from "./attachment.ts";
import { COLLECT_BYTES_DEFAULT, createCollector } from "./collected-output.ts";
import type { RunResult } from "./collected-output.ts";
import { FileCalls } from "./file-calls.ts";
import { allOfPages } from "./page.ts";
import { interruptedError, ProcessHandle } from "./process-handle.ts";
import type { CallOptions } from "./transport.ts";

/** All but the program itself; see `execRequestSchema` for bounds and defaults. */
export type ExecOptions = Omit<ExecRequest, "argv">;

/** As `ExecOptions`, with the size of the terminal. */
export type TerminalOptions = Omit<ExecOptions, "stdin" | "terminal"> &
  CallOptions & { readonly rows?: number; readonly columns?: number };

/** Whose user's shell it is only the agent knows. */
const LOGIN_SHELL: readonly string[] = [
  "/bin/sh",
  "-c",
  'SHELL=$(getent passwd "$(id -u)" | cut -d: -f7); export SHELL="${SHELL:-/bin/sh}"; exec "$SHELL" -l',
];

export class ProcessCalls extends FileCalls {
  /**
   * Starts a program in the agent and resolves as soon as it runs. Wakes the agent first where it is
   * asleep. The program outlives this client.
   *
   * @param argv program and arguments; no shell is involved. Empty: the image's own program
   * @throws `exec_failed`, `user_not_found`, `path_not_found` for `cwd`, `agent_state`
   * @example
   * const process = await perdure.exec("a1", ["sh", "-c", "echo $GREETING"], {
   *   env: { GREETING: "hello" },
   *   timeoutMs: 60_000,
   * });
   * console.log(process.process);
   */
  async exec(
    agent: string,
    argv: readonly string[],
    request: ExecOptions = {},
    options: CallOptions = {},
  ): Promise<ProcessHandle> {
    const body = { ...request, argv };
    const { process } = await this.call(routes.exec, { agent }, { json: body, ...options });
    return new ProcessHandle(this.transport, agent, process);
  }

  /**
   * A handle on a process that was started before. Does no I/O.
   *
   * @example
   * const { process } = await perdure.exec("a1", ["echo", "hello"]);
   * const exit = await perdure.process("a1", process).wait();
   */
  process(agent: string, process: number): ProcessHandle {
    return new ProcessHandle(this.transport, agent, process);
  }

  /**
   * Runs a program to its end and collects its output.
   *
   * @param request.limitBytes keeps the first bytes of both streams together, default 16 MiB
   * @throws as `exec`; `interrupted` where the agent sleeps or stops first
   * @example
   * const { exitCode, stdout } = await perdure.run("a1", ["uname", "-r"]);
   * console.log(exitCode, new TextDecoder().decode(stdout));
   */
  async run(
    agent: string,
    argv: readonly string[],
    request: Omit<ExecOptions, "stdin"> & { readonly limitBytes?: number } = {},
    options: CallOptions = {},
  ): Promise<RunResult> {
    const { limitBytes = COLLECT_BYTES_DEFAULT, ...rest } = request;
    const handle = await this.exec(agent, argv, rest, options);
    const collector = createCollector(limitBytes);
    for await (const event of handle.output(options)) {
      collector.add(event);
      if (event.type === "exit") return collector.result(handle.process, event);
      if (event.type === "interrupted") throw interruptedError(handle, event);
    }
    throw new PerdureError("internal", "The output ended without an exit");
  }

  /**
   * Starts a program on a terminal of its own and attaches to it. Without one, the shell of the user logs in.
   *
   * @param options.rows default 24, as `columns` is 80; 1 to 4096
   * @param options.env `TERM` is `xterm-256color` unless it says otherwise
   * @throws as `exec` and `ProcessHandle.attach`
   * @example
   * await using terminal = await perdure.terminal("a1", ["sh", "-c", "stty size"], { columns: 132 });
   * for await (const event of terminal) {
   *   if (event.type === "output") console.log(new TextDecoder().decode(event.bytes)); // 24 132
   * }
   */
  async terminal(
    agent: string,
    argv: readonly string[] = LOGIN_SHELL,
    options: TerminalOptions = {},
  ): Promise<Attachment> {
    const { rows = 24, columns = 80, env, signal, ...request } = options;
    const terminal = { rows, columns };
    const variables = { TERM: "xterm-256color", ...env };
    const body = { ...request, env: variables, terminal };
    const handle = await this.exec(agent, argv, body, { signal });
    return handle.attach({ signal });
  }

  /**
   * Attaches to a program that was started before: `process(agent, process).attach(options)`.
   *
   * @example
   * const { process } = await perdure.exec("a1", ["echo", "hello"]);
   * for await (const event of await perdure.attach("a1", process)) console.log(event.type);
   */
  attach(agent: string, process: number, options: AttachOptions = {}): Promise<Attachment> {
    return this.process(agent, process).attach(options);
  }

  /**
   * Programs that exec started in the agent, in order of start.
   *
   * @throws `agent_not_found`
   * @example
   * for (const { process, argv, running } of await perdure.processes("a1")) {
   *   console.log(process, argv.join(" "), running);
   * }
   */
  async processes(agent: string, { signal }: CallOptions = {}): Promise<ProcessView[]> {
    return allOfPages(async (after) => {
      const query = { ...after, limit: apiLimits.listLimitMax };
      const page = await this.call(routes.processes, { agent }, { query, signal });
      return { items: page.processes, next: page.next };
    });
  }
}
