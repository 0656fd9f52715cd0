import { egressPolicySchema, egressRuleSchema, egressTargetSchema } from "@perdure/protocol";
import fc from "fast-check";
import type { z } from "zod";
import { describe, expect, test } from "vitest";
import { decideByName, decideEgress, type WantedConnection } from "./decision.ts";

type Rules = NonNullable<z.input<typeof egressPolicySchema>["rules"]>;

const web: WantedConnection = { name: "www.example.com", address: "93.184.216.34", port: 443 };

function verdict(rules: Rules, wanted: Partial<WantedConnection> = {}, otherwise?: "allow") {
  const policy = egressPolicySchema.parse({ rules, otherwise });
  return decideEgress(policy, { ...web, ...wanted }).verdict;
}

test("without a rule nothing goes out, and the first rule that speaks of it decides", () => {
  expect(verdict([])).toBe("deny");
  expect(verdict([], {}, "allow")).toBe("allow");
  const allow = { action: "allow", to: "*" } as const;
  const deny = { action: "deny", to: "www.example.com" } as const;
  expect(verdict([allow, deny])).toBe("allow");
  expect(verdict([deny, allow])).toBe("deny");
  const policy = egressPolicySchema.parse({ rules: [{ ...deny, to: "other.example" }, deny] });
  expect(decideEgress(policy, web)).toEqual({
    verdict: "deny",
    rule: 1,
    why: "Rule 2 denies www.example.com",
  });
});

test.each([
  ["www.example.com", true],
  ["WWW.Example.COM", true],
  ["*.example.com", true],
  ["*.com", true],
  ["*", true],
  ["example.com", false],
  ["*.www.example.com", false],
  ["ww.example.com", false],
  ["93.184.216.34", true],
  ["93.184.0.0/16", true],
  ["93.184.217.0/24", false],
  ["2001:db8::/32", false],
] as const)("a rule about %s speaks of www.example.com at 93.184.216.34: %s", (to, speaks) => {
  expect(verdict([{ action: "allow", to }])).toBe(speaks ? "allow" : "deny");
});

test("a name's rule says nothing of what is asked for by address", () => {
  expect(verdict([{ action: "allow", to: "*.example.com" }], { name: null })).toBe("deny");
  expect(verdict([{ action: "allow", to: "*" }], { name: null })).toBe("allow");
});

test("a name that ends alike is no name below", () => {
  const wanted = { name: "badexample.com" };
  expect(verdict([{ action: "allow", to: "*.example.com" }], wanted)).toBe("deny");
});

test("ports", () => {
  expect(verdict([{ action: "allow", to: "*", ports: [80, 443] }])).toBe("allow");
  expect(verdict([{ action: "allow", to: "*", ports: [80] }])).toBe("deny");
});

describe("addresses that are not public", () => {
  const addresses = [
    "127.0.0.1",
    "127.9.9.9",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "198.18.0.5",
    "224.0.0.1",
    "255.255.255.255",
    "::1",
    "::",
    "fe80::1",
    "fc00::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::7f00:1",
  ];

  test.each(addresses)("%s is reached by no rule that does not mean it", (address) => {
    for (const name of ["www.example.com", null]) {
      expect(verdict([{ action: "allow", to: "*" }], { address, name })).toBe("deny");
      expect(verdict([], { address, name }, "allow")).toBe("deny");
    }
    expect(verdict([{ action: "allow", to: "www.example.com" }], { address })).toBe("deny");
    expect(verdict([{ action: "allow", to: "www.example.com", private: true }], { address })).toBe(
      "allow",
    );
  });

  test.each([
    "0.0.0.0/0",
    "0.0.0.0/1",
    "128.0.0.0/1",
    "10.0.0.0/7",
    "168.0.0.0/5",
    "::/0",
    "fc00::/6",
  ])("are not meant by %s, which has others as well", (to) => {
    for (const address of [...addresses, "10.0.0.1", "fc00::2"]) {
      expect(verdict([{ action: "allow", to }], { address, name: null })).toBe("deny");
    }
    expect(verdict([{ action: "allow", to, private: true }], { address: "10.0.0.1" })).toBe(
      to === "0.0.0.0/0" || to === "0.0.0.0/1" || to === "10.0.0.0/7" ? "allow" : "deny",
    );
  });

  test.each([
    ["10.0.0.0/8", "10.255.255.255"],
    ["172.16.0.0/12", "172.31.0.1"],
    ["10.1.2.4/30", "10.1.2.7"],
    ["fc00::/7", "fd12::1"],
  ])("are meant by %s, which has no others", (to, address) => {
    expect(verdict([{ action: "allow", to }], { address, name: null })).toBe("allow");
  });

  test("are reached by their address or network", () => {
    const address = "127.0.0.1";
    expect(verdict([{ action: "allow", to: "127.0.0.1" }], { address })).toBe("allow");
    expect(verdict([{ action: "allow", to: "127.0.0.0/8" }], { address, name: null })).toBe(
      "allow",
    );
    expect(verdict([{ action: "allow", to: "::1/128" }], { address: "::1" })).toBe("allow");
    // A v4 address in v6's clothes is what it is.
    const dressed = { address: "::ffff:127.0.0.1" };
    expect(verdict([{ action: "allow", to: "127.0.0.1" }], dressed)).toBe("allow");
    expect(verdict([{ action: "allow", to: "::/0" }], dressed)).toBe("deny");
  });
});

describe("methods", () => {
  const get: Rules[number] = { action: "allow", to: "*", methods: ["GET", "HEAD"] };

  test("are waited for, and only where nothing before decides", () => {
    expect(verdict([get])).toBe("look");
    expect(verdict([{ action: "deny", to: "*" }, get])).toBe("deny");
    expect(verdict([{ ...get, ports: [80] }])).toBe("deny");
    expect(verdict([get], { address: "10.0.0.1" })).toBe("deny");
  });

  test.each([
    ["GET", "allow"],
    ["POST", "deny"],
    [null, "deny"],
  ] as const)("%s: %s", (method, expected) => {
    expect(verdict([get], { method })).toBe(expected);
  });

  test("one that is denied by its method alone lets the others through", () => {
    const rules: Rules = [
      { action: "deny", to: "*", methods: ["DELETE"] },
      { action: "allow", to: "*" },
    ];
    expect(verdict(rules)).toBe("look");
    expect(verdict(rules, { method: "DELETE" })).toBe("deny");
    expect(verdict(rules, { method: "GET" })).toBe("allow");
    expect(verdict(rules, { method: null })).toBe("allow");
  });
});

test.each([
  "",
  "*.",
  "*.*.com",
  "a..b",
  "-a.com",
  "http://a.com",
  "a.com:80",
  "1.2.3",
  "a.0x7f",
  "1.2.3.4.5/8",
  "300.1.1.1",
  "10.0.0.0/33",
  "10.0.0.0/",
  "10.0.0.0/8/8",
  "::1/129",
  "a/8",
  `${"a".repeat(64)}.com`,
  "a b",
  "ä.com",
])("%j is no target", (target) => {
  expect(egressTargetSchema.safeParse(target).success).toBe(false);
});

test.each([
  { action: "allow", to: "*", ports: [0] },
  { action: "allow", to: "*", ports: [65_536] },
  { action: "allow", to: "*", ports: [] },
  { action: "allow", to: "*", methods: ["get"] },
  { action: "perhaps", to: "*" },
  { action: "allow", to: "*", path: "/" },
])("%j is no rule", (rule) => {
  expect(egressRuleSchema.safeParse(rule).success).toBe(false);
});

describe("before a name is looked up", () => {
  const early = (rules: Rules, otherwise?: "allow") =>
    decideByName(egressPolicySchema.parse({ rules, otherwise }), {
      name: "www.example.com",
      port: 443,
    })?.verdict ?? "open";

  test.each<[Rules, string]>([
    [[], "deny"],
    [[{ action: "allow", to: "*.other.example" }], "deny"],
    [[{ action: "allow", to: "*", ports: [80] }], "deny"],
    [
      [
        { action: "deny", to: "*.example.com" },
        { action: "allow", to: "*" },
      ],
      "deny",
    ],
    [[{ action: "deny", to: "93.0.0.0/8" }], "deny"],
    [[{ action: "allow", to: "10.0.0.5" }], "open"],
    [
      [
        { action: "deny", to: "*", methods: ["POST"] },
        { action: "allow", to: "*" },
      ],
      "open",
    ],
    [[{ action: "allow", to: "www.example.com", methods: ["GET"] }], "open"],
  ])("%j: %s", (rules, expected) => {
    expect(early(rules)).toBe(expected);
  });

  test("what is denied is denied wherever the name leads", () => {
    const to = fc.constantFrom(
      "*",
      "a.example",
      "*.example",
      "10.0.0.0/8",
      "93.184.216.34",
      "::/0",
    );
    const rule = fc.record({
      action: fc.constantFrom("allow" as const, "deny" as const),
      to,
      ports: fc.constantFrom(undefined, [80], [443]),
      methods: fc.constantFrom(undefined, ["GET"]),
    });
    fc.assert(
      fc.property(
        fc.array(rule, { maxLength: 5 }),
        fc.constantFrom("allow" as const, "deny" as const),
        fc.constantFrom("a.example", "b.other"),
        fc.constantFrom("10.0.0.1", "93.184.216.34", "2606::1"),
        fc.constantFrom(null, "GET", "POST"),
        (rules, otherwise, name, address, method) => {
          const policy = egressPolicySchema.parse({ rules, otherwise });
          const known = decideByName(policy, { name, port: 443 });
          const decision = decideEgress(policy, { name, address, port: 443, method });
          if (known !== null) expect(decision.verdict).toBe("deny");
        },
      ),
    );
  });
});
