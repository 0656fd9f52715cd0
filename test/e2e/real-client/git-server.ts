/** A real git remote over HTTP: git's own back end behind a plain HTTP server. */
import { spawn } from "node:child_process";
import type { IncomingMessage, ServerResponse } from "node:http";

/** @param root the folder of the repositories, each of which may be read and pushed to */
export function gitOverHttp(root: string) {
  return (request: IncomingMessage, response: ServerResponse): void => {
    const { pathname, search } = new URL(request.url ?? "/", "http://git");
    const { headers, method = "GET" } = request;
    const backend = spawn("git", ["http-backend"], {
      env: {
        PATH: process.env["PATH"],
        GIT_PROJECT_ROOT: root,
        GIT_HTTP_EXPORT_ALL: "1",
        GIT_CONFIG_COUNT: "2",
        GIT_CONFIG_KEY_0: "http.receivepack",
        GIT_CONFIG_VALUE_0: "true",
        GIT_CONFIG_KEY_1: "safe.directory",
        GIT_CONFIG_VALUE_1: "*",
        REQUEST_METHOD: method,
        PATH_INFO: decodeURIComponent(pathname),
        QUERY_STRING: search.slice(1),
        CONTENT_TYPE: headers["content-type"] ?? "",
        ...(headers["content-length"] && { CONTENT_LENGTH: headers["content-length"] }),
        ...(headers["content-encoding"] && { HTTP_CONTENT_ENCODING: headers["content-encoding"] }),
        ...(typeof headers["git-protocol"] === "string" && {
          GIT_PROTOCOL: headers["git-protocol"],
        }),
      },
      stdio: ["pipe", "pipe", "inherit"],
    });
    request.pipe(backend.stdin);
    backend.stdin.on("error", () => undefined);
    let head = Buffer.alloc(0);
    const readHead = (chunk: Buffer): void => {
      head = Buffer.concat([head, chunk]);
      const end = head.indexOf("\r\n\r\n");
      if (end < 0) return;
      backend.stdout.off("data", readHead);
      let status = 200;
      for (const line of head.subarray(0, end).toString().split("\r\n")) {
        const [name = "", value = ""] = line.split(/: */, 2);
        if (name === "Status") status = Number.parseInt(value, 10);
        else response.setHeader(name, value);
      }
      response.writeHead(status);
      response.write(head.subarray(end + 4));
      backend.stdout.pipe(response);
    };
    backend.stdout.on("data", readHead);
  };
}
