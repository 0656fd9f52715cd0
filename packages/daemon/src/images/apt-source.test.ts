import { expect, test } from "vitest";
import {
  parseSourceLines,
  parseSourceStanzas,
  sourcesFor,
  transportOptions,
} from "./apt-source.ts";

const stanzas = `Types: deb
# an older address
URIs: http://mirror.example.org/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb-src
URIs: http://sources.example.org/debian
Suites: bookworm

Enabled: no
Types: deb
URIs: http://off.example.org/debian
Suites: bookworm-security
`;

test("one-line entries are read with and without options, sources and comments are not", () => {
  const text = `# deb http://old bookworm main
deb [signed-by=/k.gpg arch=amd64] http://mirror/debian bookworm main contrib
deb http://mirror/security bookworm-security main
deb-src http://mirror/debian bookworm main`;
  expect(parseSourceLines(text)).toEqual([
    { uris: ["http://mirror/debian"], suites: ["bookworm"] },
    { uris: ["http://mirror/security"], suites: ["bookworm-security"] },
  ]);
});

test("stanzas that are off or hold sources only are left out", () => {
  expect(parseSourceStanzas(stanzas)).toEqual([
    { uris: ["http://mirror.example.org/debian"], suites: ["bookworm", "bookworm-updates"] },
  ]);
});

test("the host's mirror is used for what it offers, the public one for the rest", () => {
  expect(sourcesFor("bookworm", parseSourceStanzas(stanzas), "/k.gpg")).toEqual([
    "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example.org/debian bookworm main",
    "deb [arch=amd64 signed-by=/k.gpg] http://mirror.example.org/debian bookworm-updates main",
    "deb [arch=amd64 signed-by=/k.gpg] http://deb.debian.org/debian-security bookworm-security main",
  ]);
});

test("a host of another suite gets the public mirror", () => {
  const ubuntu = [{ uris: ["http://archive.ubuntu.com/ubuntu"], suites: ["noble"] }];
  expect(sourcesFor("bookworm", ubuntu)[0]).toBe(
    "deb [arch=amd64] http://deb.debian.org/debian bookworm main",
  );
});

test("settings about the way to a mirror are taken over, everything else is not", () => {
  const dump = `APT::Architecture "arm64";
Acquire::Check-Valid-Until "false";
Acquire::http "";
Acquire::http::Proxy "http://proxy:3128";
Acquire::http::mirror.example.org::Proxy "DIRECT";
Acquire::https::CaInfo "/etc/ssl/ca.pem";
Dir::Etc::netrc "auth.conf";
DPkg::Post-Invoke:: "rm -f /var/cache/apt/archives/*.deb";`;
  expect(transportOptions(dump)).toEqual([
    'Acquire::Check-Valid-Until "false";',
    'Acquire::http::Proxy "http://proxy:3128";',
    'Acquire::http::mirror.example.org::Proxy "DIRECT";',
    'Acquire::https::CaInfo "/etc/ssl/ca.pem";',
  ]);
});
