/** Room on the disk that is promised but not yet used. */
import { diskFull, freeBytes } from "../store-error.ts";

/**
 * Kept free for manifests, the state store and the daemon's log, so that a full disk can still be
 * reported, and cleaned up, in good order.
 */
export const STORE_RESERVE_BYTES = 64 * 1024 * 1024;

export class Reservations {
  readonly #home: string;
  readonly #reserveBytes: number;
  #promised = 0;

  constructor(home: string, reserveBytes = STORE_RESERVE_BYTES) {
    this.#home = home;
    this.#reserveBytes = reserveBytes;
  }

  /** @throws `disk_full` */
  async take(bytes: number): Promise<{ release(): void }> {
    const free = await freeBytes(this.#home);
    // Nothing is awaited between here and the addition: two callers never share the same room.
    const kept = this.#promised + this.#reserveBytes;
    if (free - kept < bytes) throw await diskFull(this.#home, "reserve room", bytes, kept);
    this.#promised += bytes;
    let held = true;
    return {
      release: () => {
        if (held) this.#promised -= bytes;
        held = false;
      },
    };
  }
}
