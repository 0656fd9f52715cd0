import { expect, it } from "vitest";
import { daemonPaths } from "./paths.ts";

it.each([
  [{ env: { PERDURE_HOME: "/h" } }, "/h", "/h/run/perdure.sock"],
  [{ env: { PERDURE_HOME: "/h", PERDURE_SOCKET: "/s" } }, "/h", "/s"],
  [{ env: { PERDURE_SOCKET: "/s" }, home: "/x" }, "/x", "/x/run/perdure.sock"],
  [{ env: { PERDURE_SOCKET: "/s" }, home: "/x", socket: "/t" }, "/x", "/t"],
  [{ env: { PERDURE_HOME: "/h", PERDURE_SOCKET: "" } }, "/h", "/h/run/perdure.sock"],
])("finds home and socket from %j", (options, home, socket) => {
  expect(daemonPaths(options)).toMatchObject({ home, socket, run: `${home}/run` });
});

it.each([[{ home: "" }], [{ socket: "" }]])("refuses an empty path: %j", (options) => {
  expect(() => daemonPaths(options)).toThrow(/it is empty/);
});

it("falls back to a home of root or of the user", () => {
  const { home } = daemonPaths({ env: {} });
  expect(home).toMatch(
    process.getuid?.() === 0 ? /^\/var\/lib\/perdure$/ : /\.local\/share\/perdure$/,
  );
});
