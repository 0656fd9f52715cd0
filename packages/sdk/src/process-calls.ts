/** Programs in an agent. Part of `Perdure`; examples run as they stand. */
import { PerdureError, routes } from "@perdure/protocol";
import type { ExecRequest, ProcessView } from "@perdure/protocol";
import { COLLECT_BYTES_DEFAULT, createCollector } from "./collected-output.ts";
import type { RunResult } from "./collected-output.ts";
import { FileCalls } from "./file-calls.ts";
import { interruptedError, ProcessHandle } from "./process-handle.ts";
import type { CallOptions } from "./transport.ts";

/** All but the program itself; see `execRequestSchema` for bounds and defaults. */
export type ExecOptions = Omit<ExecRequest, "argv">;

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
   * Programs that exec started in the agent, in order of start.
   *
   * @throws `agent_not_found`
   * @example
   * for (const { process, argv, running } of await perdure.processes("a1")) {
   *   console.log(process, argv.join(" "), running);
   * }
   */
  async processes(agent: string, options: CallOptions = {}): Promise<ProcessView[]> {
    return (await this.call(routes.processes, { agent }, options)).processes;
  }
}
