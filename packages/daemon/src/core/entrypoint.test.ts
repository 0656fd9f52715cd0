/** What an agent takes from its image: the program that is started by itself, and what calls leave out. */
import { beforeEach, describe, expect, test } from "vitest";
import type { ImageConfig } from "@perdure/protocol";
import { violationsOf } from "../../../../test/simulation/invariant.ts";
import {
  create,
  fork,
  recover,
  reportOf,
  restore,
  verb,
} from "../../../../test/simulation/scene.ts";
import { World } from "../../../../test/simulation/world.ts";
import { withDefaults } from "./exec-default.ts";

const config: ImageConfig = {
  user: "app",
  cwd: "/srv",
  env: { PATH: "/bin", A: "image" },
  entrypoint: ["wait"],
  cmd: ["serve"],
  start: true,
  stopSignal: null,
  labels: {},
  exposedPorts: [],
  volumes: [],
};

describe("an exec", () => {
  const agent = { name: "a1", image: { id: "e".repeat(64) as never, name: "base" } };
  const wish = { env: {}, stdin: false };

  test("takes from the image what it leaves out", () => {
    expect(withDefaults(agent, { ...wish, argv: ["ls"] }, config)).toEqual({
      argv: ["ls"],
      user: "app",
      cwd: "/srv",
      env: { PATH: "/bin", A: "image" },
      stdin: false,
    });
  });

  test("is what it says where it says it", () => {
    const all = { argv: ["ls"], user: "root", cwd: "/", env: { A: "call", B: "2" }, stdin: true };
    expect(withDefaults(agent, all, config)).toEqual({
      ...all,
      env: { PATH: "/bin", A: "call", B: "2" },
    });
  });

  test("without a program runs the image's", () => {
    for (const argv of [undefined, []]) {
      const { argv: run } = withDefaults(
        agent,
        argv === undefined ? wish : { ...wish, argv },
        config,
      );
      expect(run).toEqual(["wait", "serve"]);
    }
  });

  test("of an image that says nothing runs as user, in its home", () => {
    expect(withDefaults(agent, { ...wish, argv: ["ls"] }, null)).toEqual({
      ...wish,
      argv: ["ls"],
      user: "user",
    });
  });

  test("that names no program, in an agent whose image has none, is refused", () => {
    for (const none of [null, { ...config, entrypoint: [], cmd: [] }]) {
      expect(() => withDefaults(agent, wish, none)).toThrow(
        expect.objectContaining({
          code: "bad_request",
          message: expect.stringContaining('image "base"') as string,
        }) as Error,
      );
    }
  });
});

describe("the image's program", () => {
  let world: World;
  beforeEach(() => {
    world = new World();
    world.imageConfig = config;
  });

  async function programs(agent = "a1"): Promise<string[]> {
    const found = await world.run(world.engine.processes({ tenant: "default", agent }));
    return found.map(({ argv }) => argv.join(" "));
  }

  const entrypointOf = async (agent = "a1") =>
    (await world.agent(agent)).report?.checks.filter(({ check }) => check === "entrypoint");

  test("is started once at create, and the report says so", async () => {
    await world.execute(create("a1"));
    expect(await programs()).toEqual(["wait serve"]);
    expect(await entrypointOf()).toMatchObject([
      { outcome: "passed", detail: expect.stringMatching(/process \d+/) as string },
    ]);
    expect((await world.agent("a1")).report?.verdict).toBe("continue");
  });

  test("is not started again by a wake: it is there", async () => {
    await world.execute(create("a1"));
    await world.execute(verb("sleep", "a1"));
    const report = reportOf(await world.execute(verb("wake", "a1")));
    expect(await programs()).toEqual(["wait serve"]);
    expect(report.checks.some(({ check }) => check === "entrypoint")).toBe(false);
  });

  test("is started anew where no memory is carried over", async () => {
    await world.execute(create("a1"));
    await world.execute({ ...verb("checkpoint", "a1"), name: "kept" });
    for (const start of [
      async () => {
        await world.execute(verb("stop", "a1"));
        await world.execute(verb("start", "a1"));
      },
      async () => {
        (await world.process("a1")).kill();
        await world.time.flush();
        await world.execute(recover("a1", "disk"));
      },
    ]) {
      await start();
      expect(await programs()).toEqual(["wait serve"]);
      expect(await entrypointOf()).toMatchObject([{ outcome: "passed" }]);
    }
    const restored = reportOf(await world.execute(restore("a1", "kept")));
    expect(restored.checks.some(({ check }) => check === "entrypoint")).toBe(false);
    expect(await programs()).toEqual(["wait serve"]);
  });

  test("goes on in a fork, and is not started there", async () => {
    await world.execute(create("a1"));
    await world.execute(fork("a1", "a2"));
    expect(await programs("a2")).toEqual(["wait serve"]);
    expect(await entrypointOf("a2")).toEqual([]);
  });

  test("is left alone where the image or the create says so, for good", async () => {
    await world.execute({ ...create("a1"), start: false });
    expect(await programs()).toEqual([]);
    await world.execute(verb("stop", "a1"));
    await world.execute(verb("start", "a1"));
    expect(await programs()).toEqual([]);
    world.imageConfig = { ...config, start: false };
    await world.execute(create("a2"));
    expect(await programs("a2")).toEqual([]);
    world.imageConfig = { ...config, entrypoint: [], cmd: [] };
    await world.execute(create("a3"));
    expect(await programs("a3")).toEqual([]);
  });

  test("fails nothing where it cannot be started: the report has a notice, the log a line", async () => {
    world.imageConfig = { ...config, entrypoint: ["no-such-program"] };
    const view = await world.execute(create("a1"));
    expect(view.state).toBe("awake");
    expect(await entrypointOf()).toMatchObject([{ outcome: "notice" }]);
    expect((await world.agent("a1")).report?.verdict).toBe("continue-with-notices");
    expect(world.complaints.join()).toContain("could not be started");
  });

  test.each([
    "create.let-out",
    "create.thawed",
    "cold-start.let-out",
    "cold-start.thawed",
  ] as const)("runs once where the daemon ends at %s", async (step) => {
    if (step.startsWith("cold-start")) {
      await world.execute(create("a1"));
      await world.execute(verb("stop", "a1"));
    }
    world.atStep = (passed) => (passed === step ? "daemon" : null);
    await world.executeOrDie(step.startsWith("create") ? create("a1") : verb("start", "a1"));
    world.atStep = null;
    await world.restart();
    expect(await programs()).toEqual(["wait serve"]);
    expect(await entrypointOf()).toMatchObject([{ outcome: "passed" }]);
    expect(await violationsOf(world)).toEqual([]);
  });
});
