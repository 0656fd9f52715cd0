/**
 * A program inside that holds random bytes in its memory, and can tell what they hash to: the load of
 * the dirty agents, and the proof that nothing of it was lost on the way.
 */

const program = `
import hashlib, mmap, os, signal, sys
size = int(sys.argv[1])
held = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, size, 1 << 20):
    held[at:at + (1 << 20)] = os.urandom(1 << 20)
def tell(*_):
    print(hashlib.sha256(held).hexdigest(), flush=True)
signal.signal(signal.SIGUSR1, tell)
tell()
while True:
    signal.pause()
`;

export function ballastArgv(bytes: number): string[] {
  return ["python3", "-c", program, String(bytes)];
}

/** A line as the program prints it. */
export const ballastLine = /^[0-9a-f]{64}\n/m;
export const BALLAST_SIGNAL = 10; // SIGUSR1
