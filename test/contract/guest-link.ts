/**
 * Contract of the port `GuestLink`, for every kind of guest: the fake one and the real guest agent.
 *
 * A subject that cannot do something says why in `missing`; the tests of that are skipped with it.
 */
import { afterAll, beforeAll, describe } from "vitest";
import { boundaryTests } from "./guest-link/boundary.ts";
import { connectTests } from "./guest-link/connect.ts";
import { outboundTests } from "./guest-link/outbound.ts";
import { controlTests } from "./guest-link/control.ts";
import { epochTests } from "./guest-link/epoch.ts";
import { execTests } from "./guest-link/exec.ts";
import { fileTests } from "./guest-link/file.ts";
import { folderTests } from "./guest-link/folder.ts";
import { processTests } from "./guest-link/process.ts";
import { GuestLinkRig } from "./guest-link/rig.ts";
import { stdinTests } from "./guest-link/stdin.ts";
import type { GuestLinkSubject } from "./guest-link/subject.ts";
import { terminalTests } from "./guest-link/terminal.ts";
import { watchTests } from "./guest-link/watch.ts";

export function guestLinkContract(name: string, open: () => Promise<GuestLinkSubject>): void {
  describe(`guest link contract: ${name}`, () => {
    const rig = new GuestLinkRig();

    beforeAll(() => rig.open(open));
    afterAll(() => rig.close());

    epochTests(rig);
    boundaryTests(rig);
    controlTests(rig);
    execTests(rig);
    processTests(rig);
    stdinTests(rig);
    terminalTests(rig);
    fileTests(rig);
    folderTests(rig);
    watchTests(rig);
    connectTests(rig);
    outboundTests(rig);
  });
}
