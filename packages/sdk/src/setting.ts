/**
 * Every environment variable that Perdure reads, in one table: `perdured --help`, the help of `perdure serve` and
 * `daemon start`, and docs/reference/settings.md come from it. setting.test.ts holds it against the sources.
 */

export interface Setting {
  readonly name: `PERDURE_${string}`;
  /** The option that goes before it, and what that takes; null where there is none. */
  readonly option: string | null;
  /** `daemon`: `perdured`, however it is started. `commands`: every other `perdure …`. */
  readonly readBy: readonly ("daemon" | "commands")[];
  readonly what: string;
  /** What holds where nothing is said. */
  readonly otherwise: string;
}

export const settings: readonly Setting[] = [
  {
    name: "PERDURE_HOME",
    option: "--home DIR",
    readBy: ["daemon", "commands"],
    what: "data directory",
    otherwise: "/var/lib/perdure as root, else ~/.local/share/perdure",
  },
  {
    name: "PERDURE_SOCKET",
    option: "--socket PATH",
    readBy: ["daemon", "commands"],
    what: "unix socket of the daemon",
    otherwise: "run/perdure.sock in the data directory",
  },
  {
    name: "PERDURE_IMAGES",
    option: "--images DIR",
    readBy: ["daemon"],
    what: "images and templates",
    otherwise: "/var/lib/perdure/images as root, else ~/.local/share/perdure/images",
  },
  {
    name: "PERDURE_ACCELERATOR",
    option: "--accelerator auto|tcg|kvm",
    readBy: ["daemon"],
    what: "hardware virtualisation (kvm) or software emulation (tcg); auto tries KVM with a probe boot",
    otherwise: "auto",
  },
  {
    name: "PERDURE_SPARES",
    option: "--spares N",
    readBy: ["daemon"],
    what: "VM processes kept ready per kind of VM, 0 to 16",
    otherwise: "1",
  },
  {
    name: "PERDURE_OWN_BASE_ABOVE",
    option: "--own-base-above MIB|never",
    readBy: ["daemon"],
    what: "changed memory, in MiB, above which a sleep writes the agent a memory base of its own, which is quicker to wake from and not encrypted",
    otherwise: "what this host was measured at",
  },
  {
    name: "PERDURE_IDLE_AFTER",
    option: "--idle-after TIME|never",
    readBy: ["daemon"],
    what: "how long an agent is idle before it is put to sleep, where its create says nothing else, as in 30s or 10m",
    otherwise: "60s",
  },
  {
    name: "PERDURE_CHECKPOINT_EVERY",
    option: "--checkpoint-every TIME|never",
    readBy: ["daemon"],
    what: "how often an awake agent is checkpointed while something changes, where its create says nothing else",
    otherwise: "60s",
  },
  {
    name: "PERDURE_LISTEN",
    option: "--listen HOST:PORT",
    readBy: ["daemon"],
    what: "listen there, too, for callers with API keys (`perdure key create`); a port alone is of this host",
    otherwise: "not",
  },
  {
    name: "PERDURE_TLS",
    option: "--tls generated",
    readBy: ["daemon"],
    what: "TLS with a certificate that the daemon makes and renews; clients trust the authority that `perdure daemon status` names",
    otherwise: "in the clear, or with the certificate given",
  },
  {
    name: "PERDURE_TLS_CERT",
    option: "--tls-cert FILE",
    readBy: ["daemon"],
    what: "certificate for --listen, PEM; a renewed one is used within a minute",
    otherwise: "in the clear",
  },
  {
    name: "PERDURE_TLS_KEY",
    option: "--tls-key FILE",
    readBy: ["daemon"],
    what: "its key, PEM",
    otherwise: "in the clear",
  },
  {
    name: "PERDURE_PREVIEW_DOMAIN",
    option: "--preview-domain DOMAIN",
    readBy: ["daemon"],
    what: "of the hosts that ports are visited by, PORT-ID.DOMAIN",
    otherwise: "localhost",
  },
  {
    name: "PERDURE_CORS_ORIGIN",
    option: "--cors-origin ORIGIN",
    readBy: ["daemon"],
    what: "origins of pages that browsers may call from, with commas between; the option may be given again",
    otherwise: "none",
  },
  {
    name: "PERDURE_URL",
    option: "--url URL",
    readBy: ["commands"],
    what: "a daemon that listens on TCP, in place of the one on this host",
    otherwise: "the socket",
  },
  {
    name: "PERDURE_API_KEY",
    option: null,
    readBy: ["commands"],
    what: "the API key that goes with a URL",
    otherwise: "none",
  },
  {
    name: "PERDURE_AUTOSTART",
    option: null,
    readBy: ["commands"],
    what: "0: no daemon is started where none answers",
    otherwise: "one is started",
  },
  {
    name: "PERDURE_DAEMON",
    option: null,
    readBy: ["commands"],
    what: "path of the program that is started as the daemon",
    otherwise: "the one that was installed",
  },
];

const WIDTH = 100;

/** What the daemon reads, for a help: by option, or by variable for a command that passes the environment on. */
export function daemonSettingsHelp(by: "option" | "variable"): string {
  return settings
    .filter(({ readBy }) => readBy.includes("daemon"))
    .map(({ name, option, what, otherwise }) => {
      const [head, aside] = by === "option" ? [option ?? name, `${name}; `] : [name, "default: "];
      return `  ${head}\n${wrapped(`${what} (${aside}${otherwise})`)}`;
    })
    .join("\n");
}

function wrapped(text: string): string {
  const indent = " ".repeat(6);
  const lines: string[] = [];
  for (const word of text.split(" ")) {
    const last = lines.at(-1);
    if (last === undefined || last.length + 1 + word.length > WIDTH) lines.push(indent + word);
    else lines[lines.length - 1] = `${last} ${word}`;
  }
  return lines.join("\n");
}
