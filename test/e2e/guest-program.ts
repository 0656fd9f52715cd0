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

/**
 * One-second tickers, each a timer of its own in the kernel: even ones on the monotonic clock, odd ones on
 * the wall clock. A line a tick: ticker, expirations since its last tick, monotonic and wall milliseconds.
 */
export function tickers(count: number): string {
  return `
import ctypes, os, select, struct, time
libc = ctypes.CDLL(None, use_errno=True)
ABSOLUTE, NONBLOCK = 1, os.O_NONBLOCK
out = os.open("/dev/shm/ticks", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
poll = select.epoll()
of = {}
for ticker in range(${count}):
    clock = time.CLOCK_REALTIME if ticker % 2 else time.CLOCK_MONOTONIC
    fd = libc.timerfd_create(clock, NONBLOCK)
    first = time.clock_gettime(clock) + 1 + ticker / ${count}
    due = struct.pack("qqqq", 1, 0, int(first), int(first % 1 * 1e9))
    assert libc.timerfd_settime(fd, ABSOLUTE, due, None) == 0, os.strerror(ctypes.get_errno())
    poll.register(fd, select.EPOLLIN)
    of[fd] = ticker
while True:
    for fd, _ in poll.poll():
        expirations, = struct.unpack("Q", os.read(fd, 8))
        now = (of[fd], expirations, time.monotonic() * 1e3, time.time() * 1e3)
        os.write(out, b"%d %d %d %d\\n" % now)
`;
}

/**
 * Looks a value up in a cache all the time; an entry lives an hour of the monotonic clock, and no longer than
 * its generation, of which it learns by inotify. It knows nothing else of sleeps. What it says at each look:
 * `miss`, `hit`, or with a new generation that, and `dropped` with the entry's age on both clocks.
 * Apart from that it counts the hits on entries that are older than their hour on the wall clock.
 */
export const cache = `
import ctypes, os, time
libc = ctypes.CDLL(None)
IN_MOVED_TO, NONBLOCK, HOUR = 0x80, os.O_NONBLOCK, 3600
events = libc.inotify_init1(NONBLOCK)
libc.inotify_add_watch(events, b"/run/perdure", IN_MOVED_TO)
looks = open("/dev/shm/looks", "w", buffering=1)
entry = None
stale = 0
while True:
    open("/dev/shm/stale", "w").write(str(stale))
    try: told = b"generation" in os.read(events, 4096)
    except BlockingIOError: told = False
    if told:
        print("generation", open("/run/perdure/generation").read().strip(), file=looks)
        print("dropped %d %d" % tuple(1e3 * (now - then) for now, then in zip((time.monotonic(), time.time()), entry)), file=looks)
        entry = None
    if entry is None or time.monotonic() - entry[0] > HOUR:
        entry = (time.monotonic(), time.time())
        print("miss", file=looks)
    else:
        if time.time() - entry[1] > HOUR: stale += 1
        print("hit", file=looks)
    time.sleep(0.05)
`;

/**
 * An HTTP service that writes each request to the disk, and four clients of it, each request on a connection
 * of its own or on one that is kept. Tells in `/dev/shm/tally` how many were answered and how many failed.
 */
export const service = `
import http.client, http.server, os, threading, time
class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        with open("/home/user/served", "a") as file: file.write(self.path + "\\n")
        body = self.path.encode() * 64
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8080), Answer)
threading.Thread(target=server.serve_forever, daemon=True).start()
lock = threading.Lock()
answered = failed = 0
def ask(which):
    global answered, failed
    kept = None
    n = 0
    while True:
        n += 1
        path = "/%d/%d" % (which, n)
        try:
            if kept is None or which % 2: kept = http.client.HTTPConnection("127.0.0.1", 8080, timeout=20)
            kept.request("GET", path)
            answer = kept.getresponse()
            good = answer.status == 200 and answer.read() == path.encode() * 64
            why = "" if good else str(answer.status)
        except Exception as error: why, kept = repr(error), None
        with lock:
            if why == "": answered += 1
            else:
                failed += 1
                with open("/dev/shm/failures", "a") as file: file.write(why + "\\n")
            with open("/dev/shm/tally.new", "w") as file: file.write("%d %d" % (answered, failed))
            os.rename("/dev/shm/tally.new", "/dev/shm/tally")
        time.sleep(0.02)
for which in range(4): threading.Thread(target=ask, args=(which,), daemon=True).start()
threading.Event().wait()
`;
