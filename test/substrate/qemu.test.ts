import { qemuSubject } from "./qemu-subject.ts";
import { substrateContract } from "../contract/substrate.ts";

// As root every VM process has a user of its own, as in the daemon; else all share the caller's.
substrateContract("QEMU", () => qemuSubject({ own: process.getuid?.() === 0 }));
