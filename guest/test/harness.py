"""The guest agent in its test mode, one fresh one per test, and what tests of it share."""

import contextlib
import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time

from link import Failed, Link

AGENT = os.path.abspath(sys.argv[1])
TESTS = []


def cgroup_mount():
    if os.geteuid() != 0:
        return None
    with open("/proc/mounts") as mounts:
        for line in mounts:
            words = line.split()
            if words[2] == "cgroup2":
                return words[1]
    return None


def test(title, needs_cgroup=False, needs_network=False):
    needs = "network" if needs_network else "cgroup" if needs_cgroup else ""

    def add(function):
        TESTS.append((title, needs, function))
        return function

    return add


def leave_network():
    """For a child: a network of its own, whose loopback is up."""
    new_network, up, flags_of, set_flags = 0x40000000, 1, 0x8913, 0x8914
    if ctypes.CDLL(None, use_errno=True).unshare(new_network) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, flags_of, struct.pack("16sH22x", b"lo", 0))
        flags = struct.unpack_from("16sH", answer)[1]
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sH22x", b"lo", flags | up))


class Guest:
    """A running agent and a synced link to it. With a network it has one of its own, with nothing but loopback."""

    def __init__(self, cgroup, network=False):
        self.folder = tempfile.mkdtemp(prefix="perdure-guest-")
        os.chmod(self.folder, 0o755)
        self.cgroup = cgroup
        ours, theirs = socket.socketpair()
        command = [AGENT, "--serve-fd", str(theirs.fileno()), "--run", self.folder]
        if cgroup:
            os.mkdir(cgroup)
            command += ["--cgroup", cgroup]
        if network:
            command += ["--network", "own"]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE,
                                        preexec_fn=leave_network if network else None,
                                        env={"ASAN_OPTIONS": "detect_leaks=1", "PATH": "/usr/bin"})
        theirs.close()
        self.socket = ours
        self.link = Link(ours)
        self.link.resync()
        self.terminals = os.listdir("/dev/pts")


    def path(self, name):
        return os.path.join(self.folder, name)

    def files(self):
        return sorted(os.listdir(self.folder))

    def close(self):
        self.socket.close()
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError("the agent does not end with its link")
        finally:
            errors = self.process.stderr.read().decode()
            shutil.rmtree(self.folder)
        left = []
        if self.cgroup:
            left = [name for name in ("workload", "hooks")
                    if os.path.exists(os.path.join(self.cgroup, name))]
            os.rmdir(self.cgroup) if not left else None
        assert code == 0, f"the agent ended with {code}:\n{errors}"
        assert "Sanitizer" not in errors, errors
        assert not left, f"cgroups were left: {left}"


def fails(status, function, *arguments, **fields):
    try:
        function(*arguments, **fields)
    except Failed as failed:
        assert failed.status == status, f"{failed} instead of {status}"
        return failed.fields.get("message", "")
    raise AssertionError(f"succeeded instead of {status}")


# Deadlines here are for what hangs: a busy host takes tens of times as long as a quiet one.
def until(condition, timeout=60):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it does not become so"
        time.sleep(0.01)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def sleeps(pid):
    """Whether it is program `sleep`, and waits."""
    with open(f"/proc/{pid}/stat") as stat:
        name, rest = stat.read().split("(", 1)[1].rsplit(")", 1)
    return name == "sleep" and rest.split()[0] == "S"


SH = ["/bin/sh", "-c"]


def once_there(guest, name):
    """The beginning of a script whose rest runs once there is a file of this name."""
    return f"until [ -e {guest.path(name)} ]; do sleep 0.02; done;"


@contextlib.contextmanager
def without_children(guest):
    """What is done here starts no child: none is there, and none that is over has taken a fault."""
    def children():
        with open(f"/proc/{guest.process.pid}/stat") as file:
            faults = file.read().rsplit(")", 1)[1].split()[8]
        with open(f"/proc/{guest.process.pid}/task/{guest.process.pid}/children") as file:
            return faults, file.read()

    entries = guest.link.call("PROCESSES").get("entry", [])
    running = [entry["pid"] for entry in entries if entry["running"]]
    until(lambda: [int(pid) for pid in children()[1].split()] == running)
    before = children()
    yield
    assert children() == before, "a child was started"


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()


def read_over_epochs(link, process, chance):
    """Reads a process's output by offset, a little in each epoch. What came, the last reader, and how many epochs ended."""
    got = b""
    epochs = 0
    while True:
        reader = link.attach(process, offset=len(got), window=chance.randrange(20, 4000))
        for _ in range(chance.randrange(1, 6)):
            if reader.credit <= 16 or not reader.step(regrant=False):
                break
        got += reader.out
        if reader.exit is not None:
            return got, reader, epochs
        link.resync()
        epochs += 1


def make_file(path, text=""):
    with open(path, "w") as file:
        file.write(text)
