/** `serve`: the daemon in the foreground, as a service manager wants it. */
import { spawn } from "node:child_process";
import { constants } from "node:os";
import type { Command } from "commander";
import { makeFolders } from "@perdure/sdk/data-folder";
import { daemonSettingsHelp } from "@perdure/sdk/setting";
import { daemonArguments, daemonProgram } from "../daemon-start.ts";
import { addDaemonOptions, pathsOf } from "../session.ts";
import type { SharedOptions } from "../session.ts";

interface ServeOptions extends SharedOptions {
  readonly images?: string;
  readonly listen?: string;
  readonly tls?: string;
  readonly tlsCert?: string;
  readonly tlsKey?: string;
  readonly insecureListen?: boolean;
  readonly previewDomain?: string;
  readonly corsOrigin?: string[];
}

export function addServeCommand(program: Command): void {
  const command = program
    .command("serve")
    .description("run the daemon in the foreground until it is ended; VMs go on")
    .option("--images <folder>", "where images and templates are kept")
    .option("--listen <host:port>", "listen on TCP, too, for callers with API keys")
    .option("--tls <generated>", "with a certificate that the daemon makes and renews")
    .option("--tls-cert <file>", "certificate for --listen, PEM")
    .option("--tls-key <file>", "its key, PEM")
    .option("--insecure-listen", "listen beyond this host without TLS")
    .option(
      "--preview-domain <domain>",
      "of the hosts that ports are visited by (default: localhost)",
    )
    .option("--cors-origin <origin...>", "pages that browsers may call from")
    .addHelpText(
      "after",
      "\nExamples:\n  perdure serve --home /srv/perdure\n" +
        "  perdure serve --listen 0.0.0.0:7070 --tls generated\n" +
        "  perdure serve --listen 0.0.0.0:7070 --tls-cert cert.pem --tls-key key.pem" +
        `\n\nVariables that it reads:\n${daemonSettingsHelp("variable")}`,
    );
  addDaemonOptions(command).action(async (options: ServeOptions) => {
    process.exitCode = await runInForeground(options);
  });
}

/** The daemon gets this process's terminal and signals, and gives its exit code. */
function runInForeground(options: ServeOptions): Promise<number> {
  const paths = pathsOf(options);
  const args = [daemonProgram(), ...daemonArguments(paths)];
  makeFolders(paths);
  for (const name of ["images", "listen", "tls", "tlsCert", "tlsKey", "previewDomain"] as const) {
    const value = options[name];
    const option = name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    if (value !== undefined) args.push(`--${option}`, value);
  }
  if (options.insecureListen === true) args.push("--insecure-listen");
  for (const origin of options.corsOrigin ?? []) args.push("--cors-origin", origin);
  const child = spawn(process.execPath, args, { stdio: "inherit" });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.on(signal, () => {
      if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
    });
  }
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code, signal) => {
      resolve(signal === null ? (code ?? 1) : 128 + constants.signals[signal]);
    });
  });
}
