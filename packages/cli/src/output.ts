/** Output of this command, which its reader may take slowly. */

/** Until it is out. @throws where it cannot be */
export function write(stream: NodeJS.WritableStream, data: Uint8Array | string): Promise<void> {
  return new Promise((resolve, reject) => {
    stream.write(data, (error) => {
      if (error == null) resolve();
      else reject(error);
    });
  });
}

/** Until all is out that was written before, or never will be; SIGINT and SIGTERM end the wait, and the process. */
export async function flushed(...streams: NodeJS.WritableStream[]): Promise<void> {
  for (const name of ["SIGINT", "SIGTERM"] as const) process.once(name, () => process.exit());
  await Promise.allSettled(streams.map((stream) => write(stream, "")));
}
