/**
 * Programs as people run them, inside, on their way out: curl, node's fetch, git over HTTP and SSH, psql, npm and
 * pip, none of which knows of a proxy, to real servers on this host that a rule allows. Takes an image with these
 * programs, and minutes under emulation: only in the soak tier.
 */
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { RequestListener, Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DaemonUnderTest } from "./daemon-under-test.ts";
import { freePort } from "./free-port.ts";
import { startDatabase } from "./real-client/database-server.ts";
import { gitOverHttp } from "./real-client/git-server.ts";
import { npmRegistry, pythonIndex } from "./real-client/package-index.ts";
import { startSsh } from "./real-client/ssh-server.ts";

const isSoak = process.env["PERDURE_TIER"] === "soak";
const PATIENCE_MS = 900_000;
const BUILD_MS = 1_800_000;
const recipe = join(import.meta.dirname, "real-client", "recipe.json");

describe.skipIf(!isSoak)(
  "real clients, from inside (in the soak tier: an image of their own)",
  () => {
    const under = new DaemonUnderTest();
    const folder = mkdtempSync(join(tmpdir(), "perdure-real-client-"));
    const ends: (() => unknown)[] = [];
    const ports = { web: 0, git: 0, npm: 0, pypi: 0, ssh: 0, db: 0, closed: 0 };
    let ssh: ReturnType<typeof startSsh>;
    const asked: string[] = [];

    beforeAll(async () => {
      execFileSync("git", [
        "init",
        "-q",
        "--bare",
        "--initial-branch=main",
        join(folder, "repo.git"),
      ]);
      ports.web = await serve((request, response) => {
        asked.push(`${request.method} ${request.headers.host} ${request.url}`);
        response.end("hello from the host\n");
      });
      ports.closed = await serve((request, response) => {
        asked.push(`closed: ${request.url}`);
        response.end("never\n");
      });
      ports.git = await serve(gitOverHttp(folder));
      ports.pypi = await serve(pythonIndex(wheel(folder)));
      ports.npm = await freePort();
      await serve(npmRegistry(`http://npm.test:${ports.npm}`, npmPackage(folder)), ports.npm);
      ports.ssh = await freePort();
      ssh = startSsh(folder, ports.ssh);
      ends.push(() => ssh.process.kill());
      ports.db = await freePort();
      mkdirSync(join(folder, "database"), { mode: 0o755 });
      execFileSync("chmod", ["755", folder]);
      const database = startDatabase(join(folder, "database"), ports.db);
      ends.push(async () => {
        database.kill("SIGINT");
        if (database.exitCode === null) await once(database, "exit");
      });
      await under.start({}, { hosts: names(Object.keys(ports)) });
      const built = await under.perdure(["image", "build", recipe, "--name", "real-client"]);
      if (built.code !== 0) throw new Error(built.stderr);
      await under.client.create({ name: "a1", image: "real-client", memoryBytes: 2 ** 30 });
      const rules = Object.entries(ports)
        .filter(([name]) => name !== "closed")
        .map(([name, port]) => ({
          action: "allow" as const,
          to: `${name}.test`,
          ports: [port],
          private: true,
        }));
      await under.client.setEgress("a1", { rules, otherwise: "deny" });
    }, BUILD_MS);
    afterAll(async () => {
      expect(await under.end()).toEqual([]);
      for (const end of ends) await end();
      rmSync(folder, { recursive: true, force: true });
    }, PATIENCE_MS);

    const sh = (line: string): Promise<string> => under.sh("a1", `set -e; ${line}`, "user");

    test(
      "none of them is told of a proxy",
      async () => {
        expect(await sh("env | grep -ic proxy || true")).toBe("0");
      },
      PATIENCE_MS,
    );

    test(
      "curl: what is allowed, and at once a refusal of what is not",
      async () => {
        expect(await sh(`curl -sS http://web.test:${ports.web}/a?b=c`)).toBe("hello from the host");
        expect(asked).toContain(`GET web.test:${ports.web} /a?b=c`);
        const refused = (url: string) => sh(`curl -sS ${url} >&2 && echo got || echo $?`);
        expect(await refused(`http://closed.test:${ports.closed}/`)).toMatch(/^(7|35|52|56)$/);
        expect(await refused(`http://web.test:${ports.closed}/`)).toMatch(/^(7|35|52|56)$/);
        expect(asked.filter((line) => line.startsWith("closed"))).toEqual([]);
      },
      PATIENCE_MS,
    );

    test(
      "node's fetch",
      async () => {
        const program = `fetch("http://web.test:${ports.web}/node").then((r) => r.text()).then((t) => process.stdout.write(t))`;
        expect(await sh(`node -e '${program}'`)).toBe("hello from the host");
      },
      PATIENCE_MS,
    );

    test.each(["http", "ssh"] as const)(
      "git over %s: clone, push, and fetch after a sleep",
      async (by) => {
        if (by === "ssh") {
          await write(".ssh/id", ssh.privateKey, 0o600);
          await write(".ssh/known_hosts", ssh.knownHost("ssh.test"), 0o600);
        }
        const url =
          by === "http"
            ? `http://git.test:${ports.git}/repo.git`
            : `ssh://root@ssh.test:${ports.ssh}${folder}/repo.git`;
        const git = `export GIT_SSH_COMMAND="ssh -i ~/.ssh/id" GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@a; cd ~`;
        await sh(
          `${git}; git clone -q ${url} ${by}; cd ${by}; git checkout -q -B main; head -c 3000000 /dev/urandom > ${by}.bin; git add .; git commit -qm ${by}; git push -q origin main`,
        );
        const head = await sh(`cd ~/${by}; git rev-parse HEAD`);
        expect(onHost("rev-parse", "main")).toBe(head);
        await under.client.sleep("a1");
        // Somebody else's work, meanwhile.
        const commit = onHost(
          ...["-c", "user.name=b", "-c", "user.email=b@b", "commit-tree", "main^{tree}"],
          ...["-p", "main", "-m", "elsewhere"],
        );
        onHost("update-ref", "refs/heads/main", commit);
        await sh(`${git}; cd ${by}; git pull -q --ff-only origin main`);
        expect(await sh(`cd ~/${by}; git rev-parse HEAD; git fsck --strict`)).toContain(commit);
      },
      PATIENCE_MS,
    );

    test(
      "psql: statements, a copy both ways, and a session that a sleep ends cleanly",
      async () => {
        const psql = `psql -qAt -h db.test -p ${ports.db} -U shop postgres`;
        await sh(
          `${psql} -c 'create table t (n int)' -c 'insert into t select generate_series(1, 200000)'`,
        );
        await sh(
          `${psql} -c 'copy t to stdout' > /tmp/t; ${psql} -c 'create table u (n int)' -c '\\copy u from /tmp/t'`,
        );
        expect(await sh(`${psql} -c 'select count(*), sum(n) from u'`)).toBe("200000|20000100000");
        const session = `${psql} -c "select pg_sleep(3600)"; echo ended $? > /tmp/session`;
        await under.client.exec("a1", ["bash", "-c", session], { user: "user" });
        const seen = `${psql} -c "select count(*) from pg_stat_activity where query ~ '^select pg_sleep'"`;
        await sh(`until [ "$(${seen})" = 1 ]; do :; done`);
        await under.client.sleep("a1");
        await under.client.wake("a1");
        expect(await sh("until [ -s /tmp/session ]; do sleep 0.1; done; cat /tmp/session")).toBe(
          "ended 2",
        );
        expect(await sh(`${psql} -c 'select 1'`)).toBe("1");
      },
      PATIENCE_MS,
    );

    test(
      "npm install and pip install",
      async () => {
        await sh(
          `mkdir -p ~/n; cd ~/n; npm init -y >/dev/null; npm install --no-audit --no-fund --registry http://npm.test:${ports.npm} greeting`,
        );
        expect(await sh(`node ~/n/node_modules/greeting/index.js`)).toBe("hello from npm");
        await sh(
          `pip install -q --no-deps --target ~/p --index-url http://pypi.test:${ports.pypi}/simple --trusted-host pypi.test greeting`,
        );
        expect(await sh(`PYTHONPATH=~/p python3 -m greeting`)).toBe("hello from pip");
      },
      PATIENCE_MS,
    );

    test("every one of their connections is on record, by name", async () => {
      const found = new Set<string>();
      for (const { name, port, outcome } of await under.client.connections("a1")) {
        found.add(`${name}:${port} ${outcome}`);
      }
      for (const name of ["web", "git", "ssh", "db", "npm", "pypi"] as const) {
        expect(found).toContain(`${name}.test:${ports[name]} carried`);
      }
      expect(found).toContain(`closed.test:${ports.closed} denied`);
    });

    function onHost(...argv: string[]): string {
      return execFileSync("git", ["-C", join(folder, "repo.git"), ...argv], {
        encoding: "utf8",
      }).trim();
    }

    async function write(path: string, content: string, mode: number): Promise<void> {
      await sh(`mkdir -p -m 700 ~/${path.replace(/\/[^/]*$/, "")}`);
      await under.client.writeFile("a1", `/home/user/${path}`, Buffer.from(content), {
        mode,
        user: "user",
      });
    }

    async function serve(listener: RequestListener, port = 0): Promise<number> {
      const server: Server = createServer(listener);
      ends.push(() => {
        server.closeAllConnections();
        server.close();
      });
      server.listen(port, "127.0.0.1");
      await once(server, "listening");
      return (server.address() as AddressInfo).port;
    }
  },
);

/** Lines of a hosts file: each is this host, as seen from the daemon. */
function names(labels: readonly string[]): Readonly<Record<string, string>> {
  return Object.fromEntries(labels.map((label) => [`${label}.test`, "127.0.0.1"]));
}

function npmPackage(folder: string) {
  const root = join(folder, "npm");
  mkdirSync(join(root, "package"), { recursive: true });
  const manifest = { name: "greeting", version: "1.0.0", main: "index.js" };
  writeFileSync(join(root, "package/package.json"), JSON.stringify(manifest));
  writeFileSync(join(root, "package/index.js"), 'process.stdout.write("hello from npm");\n');
  const file = "greeting-1.0.0.tgz";
  execFileSync("tar", ["-czf", join(root, file), "-C", root, "package"]);
  return { name: "greeting", version: "1.0.0", file, bytes: readFileSync(join(root, file)) };
}

function wheel(folder: string) {
  const file = "greeting-1.0.0-py3-none-any.whl";
  const path = join(folder, file);
  const info = "greeting-1.0.0.dist-info";
  const program = `
import zipfile
with zipfile.ZipFile(${JSON.stringify(path)}, "w") as wheel:
    wheel.writestr("greeting.py", "print('hello from pip')\\n")
    wheel.writestr("${info}/METADATA", "Metadata-Version: 2.1\\nName: greeting\\nVersion: 1.0.0\\n")
    wheel.writestr("${info}/WHEEL", "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr("${info}/RECORD", "")
`;
  execFileSync("python3", ["-c", program]);
  return { name: "greeting", version: "1.0.0", file, bytes: readFileSync(path) };
}
