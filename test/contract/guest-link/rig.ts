/** What the tests of a guest link share: one guest, and links to it that are in step. */
import type { TestContext } from "vitest";
import type { GuestExec, GuestLink } from "../../../packages/daemon/src/core/ports/guest-link.ts";
import { pieces } from "./byte-source.ts";
import type { GuestCapability, GuestLinkSubject } from "./subject.ts";

export const DEADLINE_MS = 60_000;

export class GuestLinkRig {
  subject!: GuestLinkSubject;
  #generation = 0;

  async open(open: () => Promise<GuestLinkSubject>): Promise<void> {
    this.subject = await open();
  }

  async close(): Promise<void> {
    await this.subject.close();
  }

  nextGeneration(): number {
    return ++this.#generation;
  }

  async synced(): Promise<GuestLink> {
    const link = await this.subject.connect();
    await link.sync(this.nextGeneration(), DEADLINE_MS);
    return link;
  }

  async letOut(): Promise<GuestLink> {
    const link = await this.synced();
    link.letOut();
    return link;
  }

  needs(context: TestContext, capability: GuestCapability): void {
    const why = this.subject.missing[capability];
    context.skip(why !== undefined, why);
  }

  shell(script: string, more: Partial<GuestExec> = {}): GuestExec {
    const argv = ["/bin/sh", "-c", script];
    return { argv, env: {}, user: this.subject.user, stdin: false, ...more };
  }

  /** Makes a folder for a test; answers its path. */
  async folder(link: GuestLink, name: string): Promise<string> {
    const path = `${this.subject.folder}/${name}`;
    await link.makeFolder(path, { user: this.subject.user, mode: 0o755, parents: false });
    return path;
  }

  write(link: GuestLink, file: string, content: string): Promise<void> {
    const bytes = Buffer.from(content);
    const options = { user: this.subject.user, mode: 0o600, size: bytes.length };
    return link.writeFile(`${this.subject.folder}/${file}`, options, pieces(bytes, 1000));
  }
}
