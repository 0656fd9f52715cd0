/** Programs that tests run inside a VM as independent witnesses: what they counted is the truth. */

/** Counts in RAM and, after it, on disk (O_SYNC), in lock step. Memory may be one ahead. */
export const counter = `
import os, time
disk = os.open("/home/user/count", os.O_CREAT | os.O_WRONLY | os.O_SYNC, 0o644)
ram = os.open("/dev/shm/count", os.O_CREAT | os.O_WRONLY, 0o644)
n = 0
while True:
    n += 1
    os.pwrite(ram, b"%012d" % n, 0)
    os.pwrite(disk, b"%012d" % n, 0)
    time.sleep(0.01)
`;

/** One line a step: number, wall clock, the generation read after it, a random number drawn after that. */
export const stepper = `
import os, time
steps = os.open("/dev/shm/steps", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
n = 0
while True:
    n += 1
    now = time.time()
    with open("/run/perdure/generation") as file: generation = file.read().strip()
    drawn = os.urandom(16).hex()
    os.write(steps, b"%d %.6f %s %s\\n" % (n, now, generation.encode(), drawn.encode()))
    time.sleep(0.01)
`;

/** Waits for events of the generation file with inotify; writes down what it reads at each. */
export const watcher = `
import ctypes, os, struct
libc = ctypes.CDLL(None)
IN_MOVED_TO = 0x80
fd = libc.inotify_init()
libc.inotify_add_watch(fd, b"/run/perdure", IN_MOVED_TO)
seen = open("/dev/shm/seen", "w", buffering=1)
print("watching", file=seen)
while True:
    events = os.read(fd, 4096)
    at = 0
    while at < len(events):
        _, _, _, length = struct.unpack_from("iIII", events, at)
        name = events[at + 16 : at + 16 + length].rstrip(b"\\0").decode()
        at += 16 + length
        if name == "generation": print(open("/run/perdure/generation").read().strip(), file=seen)
`;

/** Numbered lines without end, until `/dev/shm/enough` is there. */
export const lines = `
import os, time
n = 0
while not os.path.exists("/dev/shm/enough"):
    n += 1
    print("line", n, flush=True)
    time.sleep(0.005)
`;

/**
 * Takes the VM's CPU away from everything else, PID 1 included, from the moment the workload is frozen:
 * a process of the highest real-time priority that left the workload's cgroup. Run as root.
 */
export function starver(seconds: number): string {
  return `
import os, time
open("/sys/fs/cgroup/cgroup.procs", "w").write(str(os.getpid()))
open("/proc/sys/kernel/sched_rt_runtime_us", "w").write("-1")
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99))
events = open("/sys/fs/cgroup/workload/cgroup.events")
open("/dev/shm/ready", "w").close()
while "frozen 1" not in events.read():
    time.sleep(0.005)
    events.seek(0)
time.sleep(0.02)
end = time.monotonic() + ${seconds}
while time.monotonic() < end: pass
`;
}

/**
 * A root process that left the workload's cgroup, so that no freeze stops it. It prints a line a step,
 * and from the moment a new generation can be read until a hook has ended it writes frames of its own
 * onto the guest link, through the guest agent's descriptor: output of every stream that may exist.
 */
export const escapee = `
import ctypes, os, struct, time
open("/sys/fs/cgroup/cgroup.procs", "w").write(str(os.getpid()))
libc = ctypes.CDLL(None, use_errno=True)
fds = [fd for fd in os.listdir("/proc/1/fd") if os.readlink("/proc/1/fd/" + fd).startswith("/dev/vport")]
link = libc.syscall(438, os.pidfd_open(1), int(fds[0]), 0)
assert link >= 0, os.strerror(ctypes.get_errno())
def forged(stream):
    payload = struct.pack("<B7xQ", 1, 0) + b"FORGED"
    return struct.pack("<IBBHI", 8 + len(payload), 3, 0, 0, stream) + payload
def generation(): return open("/run/perdure/generation").read()
frames = b"".join(forged(stream) for stream in range(1, 33))
born = generation()
n = sent = 0
while True:
    n += 1
    print("step", n, "%.6f" % time.time(), flush=True)
    if generation() != born and not os.path.exists("/dev/shm/hook-ends"):
        try: sent += os.write(link, frames)
        except BlockingIOError: pass
        with open("/dev/shm/forged", "w") as file: file.write(str(sent))
    time.sleep(0.01)
`;

export interface Step {
  readonly number: number;
  readonly atMs: number;
  readonly generation: number;
  readonly drawn: string;
}

/** What `stepper` wrote. An unfinished last line is left out. */
export function parseSteps(text: string): Step[] {
  return text
    .split("\n")
    .map((line) => line.split(" "))
    .filter((words) => words[3]?.length === 32)
    .map(([number, at, generation, drawn = ""]) => ({
      number: Number(number),
      atMs: Number(at) * 1000,
      generation: Number(generation),
      drawn,
    }));
}
