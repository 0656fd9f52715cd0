/** `perdured`: reads the settings, runs the daemon until it is told to stop. */
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { durationMs, PerdureError, restLimits } from "@perdure/protocol";
import { daemonPaths } from "@perdure/sdk";
import { makeFolder, makeFolders } from "@perdure/sdk/data-folder";
import { daemonSettingsHelp } from "@perdure/sdk/setting";
import type { TcpSettings } from "./api/tcp.ts";
import { crashPointFrom } from "./crash-point.ts";
import { openDaemon } from "./daemon.ts";
import { tellOfDefects } from "./defect.ts";
import { lockHolder } from "./file-lock.ts";
import { defaultImagesDirectory } from "./images/image-store.ts";
import { listenFrom } from "./api/listen-option.ts";
import type { ListenOptions } from "./api/listen-option.ts";
import { createLog } from "./log.ts";

const usage = `Usage: perdured [OPTION]...

The daemon behind the "perdure" command, which starts it when none runs. In brackets: the variable that
says the same, and what holds where neither does.

${daemonSettingsHelp("option")}
  --insecure-listen
      listen beyond this host without TLS all the same
  --verbose
      log every request
`;

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      home: { type: "string" },
      socket: { type: "string" },
      images: { type: "string" },
      accelerator: { type: "string" },
      spares: { type: "string" },
      "own-base-above": { type: "string" },
      "idle-after": { type: "string" },
      "checkpoint-every": { type: "string" },
      listen: { type: "string" },
      tls: { type: "string" },
      "tls-cert": { type: "string" },
      "tls-key": { type: "string" },
      "insecure-listen": { type: "boolean", default: false },
      "cors-origin": { type: "string", multiple: true },
      "preview-domain": { type: "string" },
      verbose: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  if (values.help) {
    process.stdout.write(usage);
    return;
  }
  const { env } = process;
  const paths = daemonPaths({
    ...(values.home === undefined ? {} : { home: values.home }),
    ...(values.socket === undefined ? {} : { socket: values.socket }),
  });
  const log = createLog(values.verbose ? "debug" : "info", (line) => process.stderr.write(line));
  const options = {
    ...paths,
    images: resolve(values.images ?? defaultImagesDirectory()),
    accelerator: acceleratorFrom(values.accelerator ?? env["PERDURE_ACCELERATOR"] ?? "auto"),
    spares: sparesFrom(values.spares ?? env["PERDURE_SPARES"] ?? "1"),
    ownBaseAboveBytes: ownBaseAboveFrom(
      values["own-base-above"] ?? env["PERDURE_OWN_BASE_ABOVE"] ?? null,
    ),
    idleAfterMs: durationFrom("idle-after", values["idle-after"] ?? env["PERDURE_IDLE_AFTER"], {
      min: restLimits.idleAfterMsMin,
      max: restLimits.idleAfterMsMax,
      otherwise: restLimits.idleAfterMsDefault,
    }),
    checkpointEveryMs: durationFrom(
      "checkpoint-every",
      values["checkpoint-every"] ?? env["PERDURE_CHECKPOINT_EVERY"],
      {
        min: restLimits.checkpointEveryMsMin,
        max: restLimits.checkpointEveryMsMax,
        otherwise: restLimits.checkpointEveryMsDefault,
      },
    ),
    tcp: await tcpFrom({
      listen: values.listen ?? env["PERDURE_LISTEN"],
      tls: values.tls ?? env["PERDURE_TLS"],
      tlsCert: values["tls-cert"] ?? env["PERDURE_TLS_CERT"],
      tlsKey: values["tls-key"] ?? env["PERDURE_TLS_KEY"],
      insecure: values["insecure-listen"],
      previewDomain: values["preview-domain"] ?? env["PERDURE_PREVIEW_DOMAIN"],
      corsOrigins: values["cors-origin"] ?? env["PERDURE_CORS_ORIGIN"]?.split(",") ?? [],
    }),
    log,
    step: crashPointFrom(env),
  };
  tellOfDefects(log);
  makeFolders(paths);
  makeFolder(options.images, imagesDirectory);
  const daemon = await openDaemon(options).catch(async (error: unknown) => {
    throw await withHolder(error, join(paths.home, "perdure.db"));
  });
  await new Promise<void>((stop) => {
    for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const)
      process.once(signal, () => stop());
    void daemon.shutdownAsked.then(stop);
  });
  await daemon.close();
  log("info", "Stopped");
}

const imagesDirectory = {
  name: "images directory",
  mode: 0o755,
  hint: "Set --images or PERDURE_IMAGES to a folder that you may write.",
};

/** Says which process holds the data directory, where that is why the daemon cannot start. */
async function withHolder(error: unknown, database: string): Promise<unknown> {
  if (!(error instanceof PerdureError) || error.code !== "daemon_running") return error;
  const pid = await lockHolder(database);
  if (pid === null) return error;
  const { code, message, hint, details, cause } = error;
  return new PerdureError(code, `${message}, pid ${pid}`, {
    ...(hint === undefined ? {} : { hint }),
    details: { ...details, pid },
    cause,
  });
}

async function tcpFrom(
  options: Omit<ListenOptions, "listen"> & { readonly listen: string | undefined },
): Promise<TcpSettings | null> {
  const { listen, tls, tlsCert, tlsKey, insecure, corsOrigins } = options;
  if (listen !== undefined && listen !== "") return listenFrom({ ...options, listen });
  const isTls = [tls, tlsCert, tlsKey].some((each) => each !== undefined);
  if (!isTls && !insecure && corsOrigins.length === 0) return null;
  throw new PerdureError(
    "bad_request",
    "--tls, --tls-cert, --tls-key, --insecure-listen and --cors-origin go with --listen",
  );
}

function acceleratorFrom(text: string): "auto" | "tcg" | "kvm" {
  if (text === "auto" || text === "tcg" || text === "kvm") return text;
  throw new PerdureError("bad_request", `--accelerator: "${text}" is none of auto, tcg, kvm`);
}

function sparesFrom(text: string): number {
  const count = Number(text);
  if (Number.isInteger(count) && count >= 0 && count <= 16) return count;
  throw new PerdureError("bad_request", `--spares: "${text}" is no number from 0 to 16`);
}

function ownBaseAboveFrom(text: string | null): number | null {
  if (text === null) return null;
  if (text === "never") return Infinity;
  const mebibytes = Number(text);
  if (text !== "" && Number.isInteger(mebibytes) && mebibytes >= 0 && mebibytes <= 65_536) {
    return mebibytes * 1024 * 1024;
  }
  throw new PerdureError(
    "bad_request",
    `--own-base-above: "${text}" is neither "never" nor a number of MiB from 0 to 65536`,
  );
}

/** As in 30s or 10m; null for "never". */
function durationFrom(
  option: string,
  text: string | undefined,
  { min, max, otherwise }: { min: number; max: number; otherwise: number },
): number | null {
  if (text === undefined) return otherwise;
  if (text === "never") return null;
  const ms = durationMs(text);
  if (ms !== null && ms >= min && ms <= max) return ms;
  throw new PerdureError(
    "bad_request",
    `--${option}: "${text}" is neither "never" nor a time from ${min} to ${max} ms, as in 30s or 10m`,
  );
}

/** What `parseArgs` throws. */
function isWrongCall(error: unknown): error is Error {
  return (
    error instanceof Error && /^ERR_PARSE_ARGS_/.test(String((error as { code?: unknown }).code))
  );
}

try {
  await main();
} catch (error) {
  const { code, message, hint } = isWrongCall(error)
    ? new PerdureError("bad_request", error.message, { hint: "Option --help shows what there is." })
    : PerdureError.from(error);
  process.stderr.write(
    `perdured: ${message} (${code})\n${hint === undefined ? "" : `Hint: ${hint}\n`}`,
  );
  // What was opened before it failed would keep the process, and its lock on the data, alive.
  process.exit(code === "bad_request" ? 2 : 1);
}
