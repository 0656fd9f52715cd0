import { qemuSubject } from "./qemu-subject.ts";
import { substrateContract } from "../contract/substrate.ts";

substrateContract("QEMU", () => qemuSubject({ own: false }));
if (process.getuid?.() === 0) {
  substrateContract("QEMU, a user for every process", () => qemuSubject({ own: true }));
}
