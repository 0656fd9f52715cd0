/** Where the daemon says what it does. Facts are plain data; secrets never are among them. */
export type LogLevel = "debug" | "info" | "warn" | "error";

export type Log = (
  level: LogLevel,
  message: string,
  facts?: Readonly<Record<string, string | number | boolean | null>>,
) => void;
