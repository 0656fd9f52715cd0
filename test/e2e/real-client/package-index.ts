/** Indexes of packages with one package each, in the forms that npm and pip read. */
import { createHash } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";

export interface IndexFile {
  readonly name: string;
  readonly version: string;
  /** The file's name, as in `left-1.0.0.tgz`. */
  readonly file: string;
  readonly bytes: Buffer;
}

/** npm's registry: a document of the package, and its archive. @param base as clients name it */
export function npmRegistry(base: string, { name, version, file, bytes }: IndexFile) {
  const tarball = `${base}/${name}/-/${file}`;
  const integrity = `sha512-${createHash("sha512").update(bytes).digest("base64")}`;
  const document = {
    name,
    "dist-tags": { latest: version },
    versions: { [version]: { name, version, bin: "./index.js", dist: { tarball, integrity } } },
  };
  return (request: IncomingMessage, response: ServerResponse): void => {
    if (request.url === `/${name}`) json(response, document);
    else if (request.url === `/${name}/-/${file}`) response.end(bytes);
    else response.writeHead(404).end("{}");
  };
}

/** The simple index of Python packages (PEP 503). */
export function pythonIndex({ name, file, bytes }: IndexFile) {
  const digest = createHash("sha256").update(bytes).digest("hex");
  return (request: IncomingMessage, response: ServerResponse): void => {
    response.setHeader("content-type", "text/html");
    if (request.url === `/simple/${name}/`) {
      response.end(`<!DOCTYPE html><a href="/files/${file}#sha256=${digest}">${file}</a>`);
    } else if (request.url === `/files/${file}`) {
      response.setHeader("content-type", "application/octet-stream").end(bytes);
    } else response.writeHead(404).end();
  };
}

function json(response: ServerResponse, value: unknown): void {
  response.setHeader("content-type", "application/json").end(JSON.stringify(value));
}
