/** The API's bound of an exec against the link that it stands for. */
import { expect, test } from "vitest";
import { apiLimits, execRequestSchema } from "@perdure/protocol";
import { frameType } from "../guest-link/frame.ts";
import { RawGuest } from "../guest-link/fake/raw-guest.ts";
import { checkExecSize } from "./exec-size.ts";

/** An exec with every field, whose last argument is `length` bytes of two-byte letters and a rest. */
function request(length: number) {
  const last = "é".repeat(length >> 1) + "x".repeat(length & 1);
  const rest = { cwd: "/tmp/é", user: "user", timeoutMs: 1000, logBytes: 4096, stdin: true };
  const terminal = { rows: 24, columns: 80 };
  const env = { A: "1", LANG: "ü" };
  const given = { argv: ["/bin/echo", "", last], user: rest.user };
  return { ...execRequestSchema.parse({ env, terminal, ...rest, ...given }), ...given };
}

function refusal(length: number): unknown {
  try {
    checkExecSize("a1", request(length));
    return null;
  } catch (error) {
    return error;
  }
}

test("the longest exec that the API takes is the longest that the link takes", async () => {
  let most = apiLimits.execBytesMax;
  while (refusal(most) !== null) most -= 1;
  const guest = await RawGuest.open();
  await expect(guest.link.exec(request(most + 1))).rejects.toMatchObject({ code: "too_large" });
  const started = guest.link.exec(request(most));
  started.catch(() => undefined);
  expect((await guest.frame(frameType.request)).payload).toHaveLength(apiLimits.execBytesMax);
  guest.link.close("test");
});

test("a longer exec is one error that names the limit, whichever field is long", () => {
  const long = "x".repeat(70_000);
  const parts = Array.from({ length: 1000 }, () => "x".repeat(70));
  for (const body of [
    { argv: [long] },
    { argv: parts },
    { argv: ["x".repeat(200_000)] },
    { argv: ["env"], env: { A: long } },
    { argv: ["env"], env: { [long]: "" } },
  ]) {
    const check = (): void => checkExecSize("a1", execRequestSchema.parse(body));
    expect(check).toThrow(
      expect.objectContaining({
        code: "too_large",
        message: expect.stringMatching(
          /^Cannot run a program in agent "a1": .* take \d+ bytes, at most 65536 fit$/,
        ) as string,
        details: expect.objectContaining({ requestBytesMax: 65_536 }) as object,
      }) as Error,
    );
  }
});
