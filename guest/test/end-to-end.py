#!/usr/bin/env python3
"""End to end over a socket pair: the whole guest agent in its test mode, one fresh one per test.

    end-to-end.py AGENT [NAME-PART]

As root with a cgroup2 mount every test runs with cgroups, and those that can also without.
"""

import json
import os
import random
import select
import shutil
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from harness import (SH, TESTS, Guest, alive, cgroup_mount, children_of, fails, once_there,  # noqa: E402
                     read_over_epochs, sleeps, test, until, without_children)
from link import (CANCEL, DATA, END, REQUEST, RESPONSE, WINDOW, OPS, RESYNC, Failed, Reader,  # noqa: E402
                  encode_fields, frame)


@test("INFO and PING tell version, boot id and clocks")
def _(guest):
    info = guest.link.call("INFO")
    with open("/proc/sys/kernel/random/boot_id") as file:
        assert info["bootId"] == file.read().strip()
    assert info["version"] and info["generation"] == 0 and info["frozen"] == 0
    ping = guest.link.call("PING")
    assert abs(ping["realtimeNs"] / 1e9 - time.time()) < 5
    assert ping["monotonicNs"] >= info["monotonicNs"]


@test("a host of any version is answered with the highest that both speak")
def _(guest):
    link = guest.link
    assert link.resync(version=9) == 3
    assert link.resync(version=2) == 2
    fails("unknown_operation", link.call, "CONNECT", port=9)
    assert link.resync(version=1) == 1
    # As an agent of version 1 would: what came later does not exist, the rest works.
    for op in ["RESIZE", "LIST_FOLDER", "MAKE_FOLDER", "MOVE_PATH", "REMOVE_PATH", "WATCH", "ACTIVITY",
               "CONNECT"]:
        fails("unknown_operation", link.call, op, path=guest.path("x"))
    assert link.run(["echo", "fine"])[0] == b"fine\n"
    link.write_file(guest.path("f"), b"0123456789")
    assert link.read_file(guest.path("f"), offset=2, length=3)[1] == b"234"
    assert link.call("STATS")["stat"]
    assert link.resync(version=3) == 3
    link.call("ACTIVITY")


@test("an unknown operation and malformed requests are answered")
def _(guest):
    link = guest.link
    fails("unknown_operation", link.call, 999)
    fails("unknown_operation", link.call, 0)
    link.send(REQUEST, 900, b"")
    assert link.take(900)[1][:2] == struct.pack("<H", 1)
    link.send(REQUEST, 901, struct.pack("<HHI", OPS["STAT"], 30, 5000))
    assert link.take(901)[1][:2] == struct.pack("<H", 1)
    link.send(REQUEST, 902, struct.pack("<H", OPS["SIGNAL"]) + struct.pack("<HI", 17, 2) + b"ab")
    assert link.take(902)[1][:2] == struct.pack("<H", 1)
    fails("bad_request", link.call, "CLOCK_ADJUST")
    fails("bad_request", link.call, "ENTROPY", bytes=b"short")
    fails("bad_request", link.call, "READ_FILE")
    fails("bad_request", link.call, "WRITE_FILE", path="/tmp/x")


@test("what would change a test host is not supported")
def _(guest):
    link = guest.link
    for op, fields in [("CLOCK_ADJUST", {"deltaNs": 5}), ("ENTROPY", {"bytes": b"x" * 32}),
                       ("DROP_CACHES", {}), ("SHUTDOWN", {})]:
        fails("not_supported", link.call, op, **fields)


@test("EXEC runs a program: output, exit code, event")
def _(guest):
    link = guest.link
    assert link.run(["echo", "hello"]) == (b"hello\n", b"", {"exitCode": 0, "timedOut": 0})
    out, err, exit_fields = link.run(SH + ["echo out; echo err >&2; exit 3"])
    assert (out, err, exit_fields["exitCode"]) == (b"out\n", b"err\n", 3)
    _, _, exit_fields = link.run(SH + ["kill -9 $$"])
    assert exit_fields == {"signal": 9, "timedOut": 0}
    assert [event["process"] for event in link.events] == [1, 2, 3]
    assert link.events[1]["exitCode"] == 3 and link.events[2]["signal"] == 9


@test("EXEC gives exactly the environment asked for, and defaults")
def _(guest):
    out, _, _ = guest.link.run(["env"], env=["A=1", "HOME=/nowhere", "B=x=y"], cwd="/")
    env = dict(line.split("=", 1) for line in out.decode().splitlines())
    env.pop("PWD", None), env.pop("_", None), env.pop("SHLVL", None)
    assert env.pop("A") == "1" and env.pop("B") == "x=y" and env.pop("HOME") == "/nowhere"
    assert env.pop("USER") == "root" and env.pop("LOGNAME") == "root"
    assert env.pop("PATH").startswith("/usr/local/sbin:") and env.pop("SHELL").startswith("/")
    assert env == {}, env
    out, _, _ = guest.link.run(SH + ["pwd; cat; umask"], cwd=guest.folder)
    assert out.decode() == f"{guest.folder}\n0022\n"
    out, _, _ = guest.link.run(["my-tool"], env=[f"PATH=/nowhere:{guest.folder}"]) if os.symlink(
        "/bin/pwd", guest.path("my-tool")) is None else None
    assert out


@test("EXEC says why a program cannot be started")
def _(guest):
    link = guest.link
    assert fails("exec_failed", link.call, "EXEC", argv=["/nowhere/x"]).startswith("ENOENT")
    assert fails("exec_failed", link.call, "EXEC", argv=["no-such-tool"]).startswith("ENOENT")
    assert fails("exec_failed", link.call, "EXEC", argv=["/etc/passwd"]).startswith("EACCES")
    assert fails("exec_failed", link.call, "EXEC", argv=["/"]).startswith("EACCES")
    with open(guest.path("nonsense"), "w") as file:
        file.write("neither a script nor a program")
    os.chmod(guest.path("nonsense"), 0o755)
    assert fails("exec_failed", link.call, "EXEC", argv=[guest.path("nonsense")]).startswith("ENOEXEC")
    fails("user_not_found", link.call, "EXEC", argv=["true"], user="nobody-here")
    fails("path_not_found", link.call, "EXEC", argv=["true"], cwd="/nowhere")
    fails("bad_request", link.call, "EXEC", argv=["true"], cwd="relative")
    fails("bad_request", link.call, "EXEC", argv=[])
    fails("bad_request", link.call, "EXEC", argv=["x"] * 1025)
    fails("bad_request", link.call, "EXEC", argv=["true"], env=["NOEQUALS"])
    fails("bad_request", link.call, "EXEC", argv=["true"], logBytes=4095)
    fails("bad_request", link.call, "EXEC", argv=["true"], logBytes=(16 << 20) + 1)
    assert link.call("PROCESSES") == {} and not link.events


@test("EXEC takes the user's ids, and its files are the user's")
def _(guest):
    if os.geteuid() != 0:
        return
    out, _, _ = guest.link.run(SH + ["id -u; id -g; id -G; echo via >/dev/stderr"], user="daemon")
    assert out == b"1\n1\n1\n", out
    _, err, _ = guest.link.run(SH + ["echo via >/dev/stderr"], user="daemon")
    assert err == b"via\n", "a user cannot open its own /dev/stderr again"


@test("EXEC leaves none of the agent's descriptors or signal settings behind")
def _(guest):
    guest.link.spawn(["sleep", "30"], stdin=True)
    out, _, _ = guest.link.run(SH + ["ls /proc/self/fd; grep -E 'Sig(Blk|Ign)' /proc/self/status"])
    words = out.decode().split()
    assert words[:4] == ["0", "1", "2", "3"], words  # 3 is the listing itself
    assert words[4:] == ["SigBlk:", "0" * 16, "SigIgn:", "0" * 16], words


@test("250 short programs in a row, each with its output")
def _(guest):
    link = guest.link
    for i in range(250):
        assert link.run(["/bin/echo", str(i)])[0] == f"{i}\n".encode()
        assert len(link.call("PROCESSES")["entry"]) <= 128
    ids = [entry["process"] for entry in link.call("PROCESSES")["entry"]]
    assert ids == list(range(123, 251)), "the oldest ended ones are forgotten, in order"
    fails("process_not_found", link.call, "ATTACH", process=1)


@test("the END of a reader comes after the last byte, whatever the size")
def _(guest):
    for size in [0, 1, 4095, 65536, 65537, 300000]:
        out, _, exit_fields = guest.link.run(["head", "-c", str(size), "/dev/zero"])
        assert out == bytes(size) and exit_fields["exitCode"] == 0


@test("a program that has ended has not ended for its reader before its output is read")
def _(guest):
    link = guest.link
    script = "sleep 0.2; head -c 10000 /dev/zero; echo err >&2"
    process = link.spawn(SH + [script], logBytes=4096)
    reader = link.attach(process, window=0)
    pid = link.call("PROCESSES")["entry"][0]["pid"]
    until(lambda: not alive(pid))
    time.sleep(0.5)  # longer than the quiet that ends a process, but its pipe is full
    assert link.call("PROCESSES")["entry"][0]["running"] == 1 and not link.events
    reader.grant(1 << 20)
    assert reader.read_to_end()["exitCode"] == 0
    assert reader.out == bytes(10000) and reader.err == b"err\n" and reader.cuts == []


@test("the offset is common to both channels and readers see the order")
def _(guest):
    script = "for i in 1 2 3; do echo out$i; sleep 0.05; echo err$i >&2; sleep 0.05; done"
    process = guest.link.spawn(SH + [script])
    reader = guest.link.attach(process)
    reader.read_to_end()
    assert [piece for _, piece in reader.pieces] == [
        b"out1\n", b"err1\n", b"out2\n", b"err2\n", b"out3\n", b"err3\n"]
    assert [channel for channel, _ in reader.pieces] == [1, 2, 1, 2, 1, 2]
    again = guest.link.attach(process, offset=7)
    again.read_to_end()
    assert (again.out, again.err) == (b"out2\nout3\n", b"r1\nerr2\nerr3\n")
    fails("bad_request", guest.link.call, "ATTACH", process=process, offset=31)
    end = guest.link.attach(process, offset=30, window=0)
    assert end.read_to_end()["exitCode"] == 0


@test("several readers at once get the same bytes")
def _(guest):
    process = guest.link.spawn(SH + ["sleep 0.2; seq 1 20000"])
    readers = [guest.link.attach(process) for _ in range(3)]
    expected = b"".join(b"%d\n" % i for i in range(1, 20001))
    for reader in readers:
        reader.read_to_end()
        assert reader.out == expected


@test("credit is kept to the byte, and nothing is sent without it")
def _(guest):
    process = guest.link.spawn(["seq", "1", "5000"])
    reader = guest.link.attach(process, window=0)
    assert guest.link.quiet(reader.stream)
    reader.grant(16)
    assert guest.link.quiet(reader.stream, 0.1), "a header without a byte"
    reader.grant(1)
    reader.step(regrant=False)
    assert reader.out == b"1" and reader.credit == 0
    reader.grant(100)
    while reader.credit > 16:
        reader.step(regrant=False)
    assert guest.link.quiet(reader.stream, 0.1)
    reader.grant(1 << 19)
    reader.read_to_end()
    assert reader.out == b"".join(b"%d\n" % i for i in range(1, 5001))


@test("a reader attached again by offset after RESYNC sees no gap and no repeat")
def _(guest):
    link = guest.link
    process = link.spawn(SH + ["i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo line $i; done"])
    expected = b"".join(b"line %d\n" % i for i in range(1, 3001))
    got, reader, epochs = read_over_epochs(link, process, random.Random(7))
    assert got == expected and epochs > 3, epochs
    assert not [frame_ for frame_ in link.frames.get(reader.stream, [])]


@test("output while nobody is attached is kept, and what was cut is reported")
def _(guest):
    link = guest.link
    process = link.spawn(SH + ["seq 1 100000; exit 4"], logBytes=8192)
    until(lambda: link.call("PROCESSES")["entry"][0]["running"] == 0)
    whole = b"".join(b"%d\n" % i for i in range(1, 100001))
    reader = link.attach(process)
    assert reader.facts == {"logStart": len(whole) - 6144, "logEnd": len(whole)}
    assert reader.read_to_end()["exitCode"] == 4
    assert reader.cuts == [(2048, len(whole) - 6144)]
    assert reader.out == whole[:2048] + whole[-6144:]
    middle = link.attach(process, offset=5000)
    middle.read_to_end()
    assert middle.cuts == [(5000, len(whole) - 6144)] and middle.out == whole[-6144:]


@test("a program that says much at once waits for its first reader: nothing is cut")
def _(guest):
    whole = b"".join(b"%d\n" % i for i in range(1, 60001))
    process = guest.link.spawn(SH + ["seq 1 60000"], logBytes=8192)
    time.sleep(1)
    reader = guest.link.attach(process)
    reader.read_to_end()
    assert reader.cuts == [] and reader.out == whole, reader.cuts


@test("while a reader is attached nothing is cut: the process waits")
def _(guest):
    link = guest.link
    process = link.spawn(SH + [f"{once_there(guest, 'go')} seq 1 60000; echo done > {guest.path('done')}"],
                         logBytes=4096)
    reader = link.attach(process, window=1000)
    link.write_file(guest.path("go"), b"")
    until(lambda: link.call("PROCESSES")["entry"][0]["logEnd"] > 0)
    time.sleep(1)
    assert not os.path.exists(guest.path("done")), "the process should wait for its reader"
    assert link.call("PROCESSES")["entry"][0]["logEnd"] <= 4096
    while reader.credit > 16:
        reader.step(regrant=False)
    reader.grant(100000)
    reader.read_to_end()
    assert reader.cuts == [] and reader.out == b"".join(b"%d\n" % i for i in range(1, 60001))
    # Detached, it is not held back.
    process = link.spawn(SH + [f"{once_there(guest, 'again')} seq 1 60000"], logBytes=4096)
    reader = link.attach(process, window=0)
    link.write_file(guest.path("again"), b"")
    time.sleep(0.6)
    assert link.call("PROCESSES")["entry"][1]["running"] == 1
    link.send(CANCEL, reader.stream)
    until(lambda: link.call("PROCESSES")["entry"][1]["running"] == 0)


@test("a slow reader stalls its own process and nothing else")
def _(guest):
    link = guest.link
    stalled = link.spawn(["yes"], logBytes=4096)
    link.attach(stalled, window=0)
    for _ in range(5):
        out, _, _ = link.run(["seq", "1", "30000"])
        assert len(out) == 168894
    began = time.monotonic()
    link.call("PING")
    assert time.monotonic() - began < 10
    ends = {link.call("PROCESSES")["entry"][0]["logEnd"] for _ in range(20)}
    assert len(ends) == 1, "the stalled process goes on"


@test("DATA is shared fairly, and answers overtake it")
def _(guest):
    link = guest.link
    readers = []
    for _ in range(4):
        process = link.spawn(["head", "-c", "1000000", "/dev/zero"])
        link.attach(process).read_to_end()  # all of it is there
        readers.append(link.attach(process, window=0))
    link.log.clear()
    link.send_raw(b"".join(frame(WINDOW, reader.stream, struct.pack("<I", 1 << 20)) for reader in readers))
    assert select.select([link.sock], [], [], 30)[0]
    ping = link.start("PING")
    link.response(ping)
    before = link.log.index((RESPONSE, ping))
    counts = [sum(1 for kind, stream in link.log[:before] if kind == DATA and stream == reader.stream)
              for reader in readers]
    assert sum(counts) > 0 and max(counts) - min(counts) <= 2, counts
    assert sum(counts) * 32768 < 3 << 20, "the answer came after all of the data"


@test("stdin: bytes, back-pressure, END, and a process that closes its end")
def _(guest):
    link = guest.link

    def feed(process, data, end=True):
        stream = link.start("STDIN", process=process)
        link.response(stream)
        credit = 0
        view = memoryview(data)
        while view:
            while credit == 0:
                kind, payload = link.take(stream)
                if kind == END:
                    return struct.unpack_from("<H", payload)[0]
                assert kind == WINDOW
                credit += struct.unpack("<I", payload)[0]
            part = view[: min(credit, 60000)]
            link.send(DATA, stream, bytes(part))
            credit -= len(part)
            view = view[len(part) :]
        if not end:
            link.send(CANCEL, stream)
            return None
        link.send(END, stream, struct.pack("<H", 0))
        while True:
            kind, payload = link.take(stream)
            if kind == END:
                return struct.unpack_from("<H", payload)[0]

    data = random.Random(3).randbytes(700000)
    process = link.spawn(["cat"], stdin=True)
    reader = link.attach(process, window=1 << 20)
    assert feed(process, data) == 0
    reader.read_to_end()
    assert reader.out == data
    # In parts, by streams that come and go; what was taken is delivered.
    process = link.spawn(["cat"], stdin=True)
    feed(process, b"one,", end=False)
    feed(process, b"two,", end=False)
    link.resync()
    assert feed(process, b"three") == 0
    assert link_run_to_end(link, process) == b"one,two,three"
    fails("process_ended", link.call, "STDIN", process=process)
    # Closed from inside.
    process = link.spawn(SH + [f"exec 0<&-; touch {guest.path('closed')}; sleep 30"], stdin=True)
    until(lambda: os.path.exists(guest.path("closed")))
    fails("stdin_closed", link.call, "STDIN", process=process)
    process = link.spawn(SH + ["head -c 10 >/dev/null; exec 0<&-; sleep 30"], stdin=True)
    assert feed(process, bytes(500000)) == 15
    # A process that does not read takes what fits and no more; one writer at a time.
    process = link.spawn(["sleep", "30"], stdin=True)
    stream = link.start("STDIN", process=process)
    link.response(stream)
    fails("bad_request", link.call, "STDIN", process=process)
    # Without stdin it is /dev/null.
    process = link.spawn(["cat"])
    assert link_run_to_end(link, process) == b""
    process = link.spawn(["sleep", "30"])
    fails("stdin_closed", link.call, "STDIN", process=process)
    fails("process_not_found", link.call, "STDIN", process=12345)


def link_run_to_end(link, process):
    reader = link.attach(process)
    reader.read_to_end()
    return reader.out


@test("SIGNAL reaches the main process, or the whole tree")
def _(guest):
    link = guest.link
    process = link.spawn(["sleep", "60"])
    link.call("SIGNAL", process=process, signal=signal.SIGTERM)
    assert link.attach(process).read_to_end()["signal"] == signal.SIGTERM
    fails("process_ended", link.call, "SIGNAL", process=process, signal=9)
    fails("process_not_found", link.call, "SIGNAL", process=999, signal=9)
    fails("bad_request", link.call, "SIGNAL", process=process, signal=0)
    fails("bad_request", link.call, "SIGNAL", process=process, signal=65)
    script = f"trap '' TERM; sleep 60 & sleep 60 & echo $! > {guest.path('pid')}; wait; wait"
    process = link.spawn(SH + [script])
    until(lambda: os.path.exists(guest.path("pid")) and os.path.getsize(guest.path("pid")))
    with open(guest.path("pid")) as file:
        child = int(file.read())
    link.call("SIGNAL", process=process, signal=signal.SIGINT)
    link.call("SIGNAL", process=process, signal=signal.SIGHUP, tree=True)
    until(lambda: not alive(child))


@test("SIGKILL with tree answers when everything is gone, daemons included")
def _(guest):
    link = guest.link
    nap = f"sleep 300.{os.getpid()}"  # nobody else's on this host
    script = f"for i in 1 2 3 4 5 6 7 8; do ({nap} & {nap}) & done; echo up; {nap}"
    if guest.cgroup:  # what leaves its session is still in its cgroup
        script = f"setsid {nap} & " + script
    process = link.spawn(SH + [script])
    reader = link.attach(process)
    reader.step()
    link.call("SIGNAL", process=process, signal=9, tree=True, deadlineMs=5000)
    for pid in [entry for entry in os.listdir("/proc") if entry.isdigit()]:
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                assert nap.replace(" ", "\0").encode() not in file.read(), f"{pid} is still there"
        except OSError:
            pass
    assert reader.read_to_end()["signal"] == 9
    fails("process_ended", link.call, "SIGNAL", process=process, signal=9, tree=True)


@test("a tree left over by its main process is logged, killed by tree, and not waited for")
def _(guest):
    link = guest.link
    script = "(sleep 0.1; echo early; sleep 1.2; echo late; sleep 60) & echo main"
    began = time.monotonic()
    process = link.spawn(SH + [script])
    reader = link.attach(process)
    assert reader.read_to_end()["exitCode"] == 0
    assert reader.out == b"main\nearly\n" and time.monotonic() - began > 0.25
    until(lambda: link.call("PROCESSES")["entry"][0]["logEnd"] == 16)
    assert link_run_to_end(link, process) == b"main\nearly\nlate\n"
    if guest.cgroup:
        link.call("SIGNAL", process=process, signal=9, tree=True)
        until(lambda: not os.path.exists(f"{guest.cgroup}/workload/p{process}"))


@test("a tree that dies as fast as it is killed leaves no cgroup behind", needs_cgroup=True)
def _(guest):
    link = guest.link
    for _ in range(100):
        process = link.spawn(SH + ["sleep 60 >/dev/null 2>&1 &"])
        assert link.attach(process).read_to_end()["exitCode"] == 0
        link.call("SIGNAL", process=process, signal=9, tree=True)
        until(lambda: not os.path.exists(f"{guest.cgroup}/workload/p{process}"))
        link.call("FORGET", process=process)


@test("a forgotten process is gone, and its daemon does not die of a closed pipe")
def _(guest):
    link = guest.link
    ticks = guest.path("ticks")
    # Says something far more often than it is waited for, and starts no program for it.
    daemon = ("import sys, time\n"
              "while True:\n"
              "    print('tick', flush=True)\n"
              "    with open(sys.argv[1], 'a') as file: file.write('.')\n"
              "    time.sleep(0.02)")
    script = (f"{shlex.join([sys.executable, '-c', daemon, ticks])} &"
              f" until test -s {ticks}; do sleep 0.02; done; exec >/dev/null 2>&1; kill -9 $$")
    process = link.spawn(SH + [script])
    fails("process_running", link.call, "FORGET", process=process)
    time.sleep(0.5)
    running = link.call("PROCESSES")["entry"][0]["running"]
    assert running == 1, "a process whose output goes on has not ended"
    link.call("SIGNAL", process=process, signal=signal.SIGSTOP, tree=True)
    until(lambda: link.call("PROCESSES")["entry"][0]["running"] == 0)
    reader = link.attach(process, window=0)
    link.call("FORGET", process=process)
    kind, payload = link.take(reader.stream)
    assert kind == END and struct.unpack_from("<H", payload)[0] == 21
    assert link.call("PROCESSES") == {}
    fails("process_not_found", link.call, "FORGET", process=process)
    if guest.cgroup:
        with open(f"{guest.cgroup}/workload/p{process}/cgroup.procs") as file:
            pids = [int(pid) for pid in file.read().split()]
        for pid in pids:
            if alive(pid):
                os.kill(pid, signal.SIGCONT)
        size = os.path.getsize(ticks)
        until(lambda: os.path.getsize(ticks) > size)
        with open(f"{guest.cgroup}/workload/p{process}/cgroup.kill", "w") as file:
            file.write("1")
        until(lambda: not os.path.exists(f"{guest.cgroup}/workload/p{process}"))


@test("a time-out kills the tree and the exit says so")
def _(guest):
    began = time.monotonic()
    out, _, exit_fields = guest.link.run(SH + ["echo first; sleep 60 & sleep 60"], timeoutMs=400)
    assert out == b"first\n" and exit_fields == {"signal": 9, "timedOut": 1}
    assert 0.35 < time.monotonic() - began < 50
    assert guest.link.events[-1]["timedOut"] == 1
    _, _, exit_fields = guest.link.run(["true"], timeoutMs=60000)
    assert exit_fields == {"exitCode": 0, "timedOut": 0}


@test("FREEZE stops the workload and its time-outs, THAW lets both go on", needs_cgroup=True)
def _(guest):
    link = guest.link
    link.call("FREEZE", deadlineMs=20000)  # an empty workload freezes at once
    assert link.call("INFO")["frozen"] == 1
    link.call("THAW")
    count = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.02; done"
    process = link.spawn(SH + [count], timeoutMs=5000)
    time.sleep(0.3)
    link.call("FREEZE", deadlineMs=20000)
    assert link.call("INFO")["frozen"] == 1
    time.sleep(0.1)
    entry = link.call("PROCESSES")["entry"][0]
    time.sleep(5.1)  # longer than the time-out
    later = link.call("PROCESSES")["entry"][0]
    assert later["logEnd"] == entry["logEnd"] and later["running"] == 1
    # A program started now waits with the rest; files and PING work.
    stream = link.start("EXEC", argv=["echo", "hi"])
    assert link.quiet(stream)
    link.write_file(guest.path("frozen"), b"x")
    link.call("THAW")
    assert link.call("INFO")["frozen"] == 0
    assert link_run_to_end(link, link.response(stream)["process"]) == b"hi\n"
    until(lambda: link.call("PROCESSES")["entry"][0]["logEnd"] > entry["logEnd"])
    assert link.attach(process).read_to_end()["timedOut"] == 1


WAITER = """
import ctypes, select, sys, threading, time
took = {}
def run(name, wait):
    began = time.monotonic()
    wait()
    took[name] = time.monotonic() - began
# Read again by the kernel at the thaw, and so by no loop of Python's.
libc = ctypes.CDLL(None)
times = [(ctypes.c_long * 2)(6, 0) for _ in range(3)]
waits = dict(
    select=lambda: libc.syscall(23, 0, None, None, None, times[0]),
    pselect=lambda: libc.syscall(270, 0, None, None, None, times[1], None),
    ppoll=lambda: libc.syscall(271, None, 0, times[2], None, 8),
)
threads = [threading.Thread(target=run, args=item) for item in waits.items()]
for thread in threads: thread.start()
print("ready", flush=True)
for thread in threads: thread.join()
print(*[f"{name}={took[name]:.3f}" for name in waits])
"""


@test("FROZEN_WAITS takes the time of the freeze off select, pselect and ppoll", needs_cgroup=True)
def _(guest):
    link = guest.link
    fails("bad_request", link.call, "FROZEN_WAITS")
    took = {}
    for shortened in [False, True]:
        process = link.spawn([sys.executable, "-c", WAITER])
        reader = link.attach(process)
        while b"ready\n" not in reader.out:
            reader.step()
        time.sleep(0.5)
        link.call("FREEZE", deadlineMs=20000)
        time.sleep(4)
        if shortened:
            assert link.call("FROZEN_WAITS") == {"value": 3}
            assert link.call("FROZEN_WAITS")["value"] <= 3  # only what has passed since
        link.call("THAW")
        fails("bad_request", link.call, "FROZEN_WAITS")
        reader.read_to_end()
        words = reader.out.decode().split()[1:]
        took[shortened] = {name: float(s) for name, s in (word.split("=") for word in words)}
    for name in ["select", "pselect", "ppoll"]:
        # Without it the rest begins again at the thaw.
        assert took[False][name] > 8.5, took
        assert 5.99 < took[True][name] < 8.5, took


@test("INFO tells what the kernel keeps time by, and a test host's clock is left alone")
def _(guest):
    info = guest.link.call("INFO")
    with open("/sys/devices/system/clocksource/clocksource0/current_clocksource") as file:
        source = file.read().strip()
    assert info["name"] == source, info
    time.sleep(1.1)
    if source == "tsc":
        assert 1e8 < guest.link.call("INFO")["value"] < 1e10
    fails("bad_request", guest.link.call, "CLOCK_SOURCE")
    fails("not_supported", guest.link.call, "CLOCK_SOURCE", name=source)


@test("a frozen tree can be killed, and an epoch does not touch the freezer", needs_cgroup=True)
def _(guest):
    link = guest.link
    process = link.spawn(SH + ["sleep 100 & sleep 100"])
    link.call("FREEZE")
    link.resync()
    assert link.call("INFO")["frozen"] == 1
    link.call("SIGNAL", process=process, signal=9, tree=True)
    assert link.call("INFO")["frozen"] == 1
    link.call("THAW")


@test("without cgroups FREEZE is not supported")
def _(guest):
    if not guest.cgroup:
        fails("not_supported", guest.link.call, "FREEZE")
        fails("not_supported", guest.link.call, "THAW")


@test("files are written whole: 0, 1, and 5 MiB, and read back")
def _(guest):
    link = guest.link
    for size in [0, 1, 65536, 5 << 20]:
        data = random.Random(size).randbytes(size)
        path = guest.path(f"file-{size}")
        assert link.write_file(path, data, mode=0o640) == {}
        with open(path, "rb") as file:
            assert file.read() == data
        assert os.stat(path).st_mode & 0o7777 == 0o640
        facts, read = link.read_file(path)
        assert read == data and facts["size"] == size and facts["kind"] == "file"
        assert facts["mode"] == 0o640 and facts["uid"] == os.geteuid()
    assert link.read_file(path, offset=1000, length=50)[1] == data[1000:1050]
    assert link.read_file(path, offset=size + 5)[1] == b""
    assert link.read_file(path, window=5000)[1] == data
    link.write_file(path, b"replaced")
    assert link.read_file(path)[1] == b"replaced"
    stream = link.start("READ_FILE", path=guest.path("file-0"))
    link.response(stream)
    assert link.take(stream) == (END, b"\0\0"), "an empty file ends without credit"
    assert guest.files() == ["file-0", "file-1", "file-5242880", "file-65536"], guest.files()


@test("a file write that does not end well leaves the old file and no draft")
def _(guest):
    link = guest.link
    path = guest.path("target")
    link.write_file(path, b"old")

    def unchanged():
        until(lambda: guest.files() == ["target"])
        with open(path, "rb") as file:
            assert file.read() == b"old"

    fails("size_mismatch", link.write_file, path, b"short", size=6)
    unchanged()
    fails("size_mismatch", link.write_file, path, b"longer", size=5)
    unchanged()
    stream = link.write_file(path, b"x" * 100000, size=100000, end=False)  # all bytes, no END
    link.send(CANCEL, stream)
    unchanged()
    link.write_file(path, b"x" * 200000, size=300000, end=False)
    link.resync()
    unchanged()
    link.write_file(path, b"y" * 100, size=100, end=False)
    link.resync()
    unchanged()
    stream = link.start("WRITE_FILE", path=path, size=10)
    link.send(CANCEL, stream)
    unchanged()
    for _ in range(30):  # END and a new epoch race: old or new, never anything between
        stream = link.write_file(path, b"new", end=False)
        link.send(END, stream, b"\0\0")
        link.resync()
        until(lambda: guest.files() == ["target"])
        with open(path, "rb") as file:
            assert file.read() in (b"old", b"new")


@test("a file larger than any buffer passes each way in bounded memory")
def _(guest):
    link = guest.link
    size = 96 << 20
    data = random.Random(5).randbytes(1 << 20) * (size >> 20)

    def resident(pid, key):
        with open(f"/proc/{pid}/status") as status:
            for line in status:
                if line.startswith(key):
                    return int(line.split()[1]) << 10
        return 0

    link.write_file(guest.path("small"), b"x")
    before = resident(guest.process.pid, "VmRSS")
    stream = link.write_file(guest.path("large"), data, end=False)
    child = children_of(guest.process.pid)[-1]
    assert resident(guest.process.pid, "VmHWM") < before + (16 << 20)
    assert resident(child, "VmHWM") < before + (16 << 20)
    link.send(END, stream, struct.pack("<H", 0))
    link.written(stream, 120)
    facts, back = link.read_file(guest.path("large"))
    assert facts["size"] == size and back == data
    assert resident(guest.process.pid, "VmHWM") < before + (16 << 20)


@test("a file write in the middle when the link closes leaves the old file and no draft")
def _(guest):
    folder = tempfile.mkdtemp()
    guest.link.write_file(folder + "/target", b"old")
    guest.link.write_file(folder + "/target", b"x" * 100, size=100, end=False)
    guest.socket.shutdown(socket.SHUT_RDWR)
    assert guest.process.wait(10) == 0
    assert os.listdir(folder) == ["target"]
    with open(folder + "/target", "rb") as file:
        assert file.read() == b"old"
    shutil.rmtree(folder)


@test("symbolic links, folders and special files are refused by name")
def _(guest):
    link = guest.link
    os.mkdir(guest.path("real"))
    with open(guest.path("real/file"), "w") as file:
        file.write("x")
    os.symlink("real", guest.path("linked"))
    os.symlink("real/file", guest.path("link"))
    os.symlink("nowhere", guest.path("dangling"))
    os.mkfifo(guest.path("pipe"))
    through = guest.path("linked/file")
    for call in [lambda p: link.call("STAT", path=p), link.read_file,
                 lambda p: link.write_file(p, b"x")]:
        message = fails("path_is_link", call, through)
        assert through in message and os.path.realpath(through) in message, message
    message = fails("path_is_link", link.read_file, guest.path("link"))
    assert os.path.realpath(guest.path("link")) in message
    fails("path_is_link", link.write_file, guest.path("link"), b"x")
    fails("path_is_link", link.write_file, guest.path("dangling"), b"x")
    fails("path_is_link", link.read_file, "/proc/self/exe")
    assert link.call("STAT", path=guest.path("link"))["kind"] == "link"
    assert link.call("STAT", path=guest.path("pipe"))["kind"] == "other"
    assert link.call("STAT", path=guest.path("real/"))["kind"] == "directory"
    assert link.call("STAT", path="/")["kind"] == "directory"
    fails("path_is_directory", link.read_file, guest.path("real"))
    fails("path_is_directory", link.write_file, guest.path("real"), b"x")
    fails("path_is_directory", link.write_file, guest.path("real/"), b"x")
    fails("path_is_directory", link.write_file, "/", b"x")
    fails("path_not_file", link.read_file, guest.path("pipe"))
    fails("path_not_file", link.read_file, "/dev/null")
    fails("path_not_file", link.write_file, guest.path("pipe"), b"x")
    fails("path_not_found", link.read_file, guest.path("none"))
    fails("path_not_found", link.write_file, guest.path("none/x"), b"x")
    fails("path_not_found", link.call, "STAT", path=guest.path("real/file/x"))
    for bad in ["relative", "", "/a/../b", "/..", "/" + "x" * 4095]:
        fails("bad_request", link.call, "STAT", path=bad)
    fails("bad_request", link.call, "STAT", path="/" + "x" * 300 + "/y")
    with open(guest.path("real/file")) as file:
        assert file.read() == "x"
    assert os.listdir(guest.path("real")) == ["file"]


@test("files are touched with the user's ids")
def _(guest):
    if os.geteuid() != 0:
        return
    link = guest.link
    os.mkdir(guest.path("closed"))
    os.chmod(guest.path("closed"), 0o700)
    with open(guest.path("secret"), "w") as file:
        file.write("secret")
    os.chmod(guest.path("secret"), 0o600)
    fails("path_denied", link.read_file, guest.path("secret"), user="daemon")
    fails("path_denied", link.call, "STAT", path=guest.path("closed/x"), user="daemon")
    fails("path_denied", link.write_file, guest.path("closed/x"), b"x", user="daemon")
    fails("path_denied", link.write_file, guest.path("x"), b"x", user="daemon")
    fails("user_not_found", link.read_file, guest.path("secret"), user="nobody-here")
    os.chown(guest.path("closed"), 1, 1)
    link.write_file(guest.path("closed/x"), b"mine", user="daemon")
    facts = link.call("STAT", path=guest.path("closed/x"), user="daemon")
    assert (facts["uid"], facts["gid"], facts["mode"]) == (1, 1, 0o644)


@test("a full disk is disk_full and leaves nothing")
def _(guest):
    if os.geteuid() != 0:
        return
    os.mkdir(guest.path("small"))
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", guest.path("small")],
                      stderr=subprocess.DEVNULL).returncode != 0:
        return
    try:
        fails("disk_full", guest.link.write_file, guest.path("small/x"), bytes(1 << 20))
        assert os.listdir(guest.path("small")) == []
    finally:
        until(lambda: subprocess.run(["umount", guest.path("small")],
                                     stderr=subprocess.DEVNULL).returncode == 0)


@test("RESYNC is found behind garbage and in the middle of frames")
def _(guest):
    link = guest.link
    chance = random.Random(11)
    for cut in [0, 1, 5, 11, 12, 13, 40, 3000]:
        link.send_raw(frame(DATA, 5, chance.randbytes(60000))[:cut])
        link.resync()
        link.call("PING")
    for prefix in range(1, 48):
        link.send_raw((RESYNC + bytes(32))[:prefix])
        link.resync()
    link.call("PING")


@test("garbage by the megabyte is ignored, and the agent goes on")
def _(guest):
    link = guest.link
    chance = random.Random(13)
    process = link.spawn(["sleep", "60"])
    for _ in range(8):
        link.send_raw(chance.randbytes(1 << 20))
    link.send_raw(b"\x89" * (1 << 20))
    link.send_raw(RESYNC[:15] * 50000)
    link.resync(30)
    assert link.call("PROCESSES")["entry"][0]["process"] == process


@test("a host that breaks the protocol gets silence until RESYNC")
def _(guest):
    link = guest.link
    process = link.spawn(["sleep", "60"], stdin=True)
    breaks = [
        lambda: link.send_raw(struct.pack("<IBBHI", 7, 1, 0, 0, 1)),
        lambda: link.send_raw(struct.pack("<IBBHI", 8 + 65537, 3, 0, 0, 1)),
        lambda: link.send_raw(struct.pack("<IBBHI", 8, 9, 0, 0, 1)),
        lambda: link.send_raw(struct.pack("<IBBHI", 8, 6, 1, 0, 1)),
        lambda: link.send(RESPONSE, 1, b"\0\0"),
        lambda: link.send(REQUEST, 0, struct.pack("<H", 2)),
        lambda: link.send(WINDOW, 1, b"abc"),
        lambda: (link.attach(process, window=1 << 20), link.window(link.next_stream - 1, 1)),
        lambda: (link.attach(process), link.send(DATA, link.next_stream - 1, b"x")),
        lambda: (link.attach(process), link.send(REQUEST, link.next_stream - 1,
                                                 struct.pack("<H", OPS["PING"]))),
        lambda: stdin_overrun(link, process),
    ]
    for number, break_it in enumerate(breaks):
        break_it()
        stream = link.start("PING")
        assert link.quiet(stream, 0.1), f"case {number} was answered"
        link.resync()
        link.call("PING")


def stdin_overrun(link, process):
    stream = link.start("STDIN", process=process)
    link.response(stream)
    for _ in range(3):  # more than the window and the pipe together take
        link.send(DATA, stream, bytes(65536))


@test("frames for streams that are not open are ignored")
def _(guest):
    link = guest.link
    link.send(DATA, 4242, b"late")
    link.send(END, 4242, b"\0\0")
    link.window(4242, 5)
    link.send(CANCEL, 4242)
    link.call("PING")


@test("256 streams may be open; the next is too_many, and one closed makes room")
def _(guest):
    link = guest.link
    process = link.spawn(["sleep", "60"])
    readers = [link.attach(process, window=0) for _ in range(256)]
    fails("too_many", link.call, "ATTACH", process=process)
    link.call("PING")
    link.send(CANCEL, readers[0].stream)
    link.attach(process, window=0)
    fails("too_many", link.call, "READ_FILE", path="/etc/passwd")
    link.resync()
    link.attach(process, window=0)


@test("an END that is made while another reader's DATA is put together damages nothing")
def _(guest):
    link = guest.link
    short = [link.spawn(SH + [f"echo short {i}"]) for i in range(4)]
    long = [link.spawn(SH + ["seq 1 60000"], logBytes=1 << 20) for _ in range(3)]
    until(lambda: all(entry["running"] == 0 for entry in link.call("PROCESSES")["entry"]))
    whole = b"".join(b"%d\n" % i for i in range(1, 60001))
    for _ in range(5):
        burst = b""
        streams = []
        for process in [short[0], long[0], short[1], long[1], short[2], long[2], short[3]]:
            stream = link.next_stream
            link.next_stream += 1
            fields = encode_fields({"process": process, "offset": 0})
            burst += frame(REQUEST, stream, struct.pack("<H", OPS["ATTACH"]) + fields)
            burst += frame(WINDOW, stream, struct.pack("<I", 1 << 20))
            streams.append((process, stream))
        link.send_raw(burst)
        for process, stream in streams:
            reader = Reader(link, stream, link.response(stream), 0)
            reader.credit = 1 << 20
            while reader.step(regrant=False):
                pass
            assert reader.out == (whole if process in long else b"short %d\n" % short.index(process))


@test("a CANCELled request is not answered and its stream is free")
def _(guest):
    link = guest.link
    stream = link.start("EXEC", argv=["sleep", "60"])
    link.send(CANCEL, stream)
    until(lambda: "entry" in link.call("PROCESSES"))
    process = link.call("PROCESSES")["entry"][0]["process"]
    reader = link.attach(process, window=0)
    link.send(CANCEL, reader.stream)
    assert link.quiet(reader.stream)


@test("PROCESSES tells everything, in order, and in pages")
def _(guest):
    link = guest.link
    ended = link.spawn(SH + ["echo 12345; exit 7"])
    link_run_to_end(link, ended)
    running = link.spawn(["sleep", "60"])
    first, second = link.call("PROCESSES")["entry"]
    assert first["argv"] == SH + ["echo 12345; exit 7"] and first["exitCode"] == 7
    assert (first["running"], first["logStart"], first["logEnd"], first["user"]) == (0, 0, 6, "root")
    assert abs(first["startedNs"] / 1e9 - time.time()) < 60
    assert second["process"] == running and second["running"] == 1 and "exitCode" not in second
    assert alive(second["pid"])
    after = link.call("PROCESSES", process=ended)["entry"]
    assert [entry["process"] for entry in after] == [running]
    long = link.spawn(["sleep", "60"] + ["0" * 1000] * 50)
    shown = link.call("PROCESSES", process=running)["entry"][0]
    assert shown["process"] == long and shown["argv"] == ["sleep", "60"]


MEMORY_STATS = {"memTotalBytes", "memAvailableBytes", "memFreeBytes", "anonBytes", "shmemBytes",
                "cachedBytes", "buffersBytes", "dirtyBytes", "unevictableBytes", "slabBytes",
                "slabReclaimableBytes"}


@test("FLUSH is answered when nothing of its child is left")
def _(guest):
    link = guest.link
    process = guest.process.pid
    for _ in range(20):
        link.call("FLUSH", deadlineMs=60000, timeout=60)
        with open(f"/proc/{process}/task/{process}/children") as file:
            assert file.read() == ""
    streams = [link.start("FLUSH", deadlineMs=60000) for _ in range(40)]
    link.send(CANCEL, streams[0])
    for stream in streams[1:]:
        link.response(stream, 60)
    link.call("PING")


@test("FLUSH, STATS and TIMERS are answered")
def _(guest):
    link = guest.link
    link.call("FLUSH", deadlineMs=60000, timeout=60)
    with without_children(guest):
        memory = {stat["name"]: stat["value"] for stat in link.call("STATS", kind="memory")["stat"]}
    process = link.spawn(["sleep", "1234"])
    pid = link.call("PROCESSES")["entry"][0]["pid"]
    until(lambda: sleeps(pid))
    stats = {stat["name"]: stat["value"] for stat in link.call("STATS")["stat"]}
    assert set(stats) == MEMORY_STATS | {"cpuUsec", "processes", "load1Milli", "diskTotalBytes",
                                         "diskFreeBytes", "diskWriteBytes"}
    assert stats["memTotalBytes"] > stats["memAvailableBytes"] > 0 and stats["processes"] == 1
    assert set(memory) == MEMORY_STATS
    assert memory["memTotalBytes"] == stats["memTotalBytes"]
    assert memory["slabBytes"] > memory["slabReclaimableBytes"] > 0 and memory["anonBytes"] > 0
    try:
        timers = link.call("TIMERS").get("timer", [])
    except Failed as failed:
        assert failed.status == "not_supported"
        return
    mine = [timer for timer in timers if timer["pid"] == pid]
    assert len(mine) == 1 and mine[0]["name"] == "sleep", timers
    assert 1200000 < mine[0]["dueInMs"] <= 1234000
    assert process


@test("GENERATION is readable inside, one rename per file, and remembered")
def _(guest):
    link = guest.link
    link.call("GENERATION", generation=41, json='{"a":1}')
    link.call("GENERATION", generation=42, json='{"a":2}')
    with open(guest.path("generation")) as file:
        assert file.read() == "42\n"
    with open(guest.path("resume.json")) as file:
        assert file.read() == '{"a":2}'
    assert link.call("INFO")["generation"] == 42
    fails("bad_request", link.call, "GENERATION", generation=1)
    assert guest.files() == ["generation", "resume.json"]


@test("GENERATION made ready by a FLUSH replaces its files whole, whatever was done to what was ready")
def _(guest):
    link = guest.link
    names = ["generation", "resume.json"]

    def ready():
        link.call("FLUSH", deadlineMs=60000, timeout=60)
        drafts = [name for name in guest.files() if name.startswith(".")]
        assert len(drafts) == 2, guest.files()
        return drafts

    readers = []
    for generation in range(1, 6):
        ready()
        text = json.dumps({"generation": generation, "pad": "x" * (20000 // generation)})
        with without_children(guest):
            link.call("GENERATION", generation=generation, json=text)
        assert guest.files() == names
        assert [os.stat(guest.path(name)).st_mode & 0o777 for name in names] == [0o644, 0o644]
        readers.append((open(guest.path("resume.json")), text))
        assert open(guest.path("generation")).read() == f"{generation}\n"
    for file, text in readers:
        assert file.read() == text, "a file that was replaced is another one inside"
    for draft in ready():
        os.unlink(guest.path(draft))
    link.call("GENERATION", generation=100, json="{}")
    assert open(guest.path("generation")).read() == "100\n" and guest.files() == names
    for draft in ready():
        os.unlink(guest.path(draft))
        os.mkdir(guest.path(draft))
    link.call("GENERATION", generation=101, json="{}")
    assert open(guest.path("generation")).read() == "101\n"


@test("IDENTITY writes names, ids and files; a missing folder is skipped, a bad value refused")
def _(guest):
    link = guest.link
    machine_id, boot_id = "0123456789abcdef" * 2, "01234567-89ab-cdef-0123-456789abcdef"
    os.makedirs(guest.path("etc/ssh"))
    link.call("IDENTITY", hostname="forked", machineId=machine_id, bootId=boot_id,
              file=[{"path": "/etc/ssh/key", "mode": 0o600, "bytes": b"\0secret"},
                    {"path": "/no/such/folder/x", "bytes": b"x"}])
    for name, text in [("hostname", "forked"), ("machine-id", machine_id), ("boot_id", boot_id)]:
        with open(guest.path(name)) as file:
            assert file.read() == text + "\n"
    with open(guest.path("etc/ssh/key"), "rb") as file:
        assert file.read() == b"\0secret"
    assert os.stat(guest.path("etc/ssh/key")).st_mode & 0o777 == 0o600
    assert not os.path.exists(guest.path("no"))
    before = os.stat(guest.path("hostname")).st_ino
    link.call("IDENTITY", hostname="f2", machineId=machine_id[::-1], bootId=boot_id)
    for name, text in [("hostname", "f2"), ("machine-id", machine_id[::-1])]:
        with open(guest.path(name)) as file:
            assert file.read() == text + "\n"
    assert os.stat(guest.path("hostname")).st_ino == before
    fails("bad_request", link.call, "IDENTITY", machineId="XYZ")
    fails("bad_request", link.call, "IDENTITY", bootId="../../../etc/passwd")
    fails("bad_request", link.call, "IDENTITY", hostname="")
    fails("bad_request", link.call, "IDENTITY", file=[{"path": "/a/../b"}])
    os.rename(guest.path("etc/ssh"), guest.path("etc/real"))
    os.symlink("real", guest.path("etc/ssh"))
    fails("path_is_link", link.call, "IDENTITY", file=[{"path": "/etc/ssh/key", "bytes": b"x"}])
    assert socket.gethostname() != "forked"


@test("ACTIVITY tells what goes on, without a child")
def _(guest):
    link = guest.link

    def activity():
        with without_children(guest):
            return {stat["name"]: stat["value"] for stat in link.call("ACTIVITY")["stat"]}

    before = activity()
    assert set(before) == {"cpuUsec", "diskWriteBytes", "execs", "fileWrites", "attached"}
    assert (before["execs"], before["fileWrites"], before["attached"]) == (0, 0, 0)
    process = link.spawn(SH + ["i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 60"])
    fails("exec_failed", link.call, "EXEC", argv=["/nowhere"])
    reader = link.attach(process)
    link.write_file(guest.path("f"), b"x")
    link.call("MAKE_FOLDER", path=guest.path("d"))
    link.call("MOVE_PATH", path=guest.path("f"), target=guest.path("d/f"))
    fails("path_not_found", link.call, "REMOVE_PATH", path=guest.path("f"))
    link.call("REMOVE_PATH", path=guest.path("d"), recursive=True)
    during = activity()
    assert (during["execs"], during["fileWrites"], during["attached"]) == (1, 4, 1), during
    if guest.cgroup:
        until(lambda: activity()["cpuUsec"] > before["cpuUsec"])
    link.send(CANCEL, reader.stream)
    assert activity()["attached"] == 0


@test("TIMERS are told as often as they are asked for, of those who still wait")
def _(guest):
    link = guest.link
    try:
        link.call("TIMERS")
    except Failed as failed:
        assert failed.status == "not_supported"
        return

    def mine():
        pids = [entry["pid"] for entry in link.call("PROCESSES")["entry"]]
        timers = link.call("TIMERS").get("timer", [])
        return {pids.index(timer["pid"]): timer["dueInMs"] for timer in timers if timer["pid"] in pids}

    link.spawn(["sleep", "2000"])
    link.spawn(["sleep", "1000"])
    until(lambda: len(mine()) == 2)
    for _ in range(50):
        found = mine()
        # Whose a timer of this host is cannot be known for sure, but that they wait.
        assert set(found) == {0, 1} and found[1] <= 1000000 and found[0] <= 2000000, found
    link.call("SIGNAL", process=2, signal=9, tree=True)
    until(lambda: set(mine()) == {0})


def put_hook(guest, name, script, mode=0o755):
    os.makedirs(guest.path("resume.d"), exist_ok=True)
    with open(guest.path(f"resume.d/{name}"), "w") as file:
        file.write("#!/bin/sh\n" + script + "\n")
    os.chmod(guest.path(f"resume.d/{name}"), mode)


@test("HOOKS run in byte order, with their output, and only executables")
def _(guest):
    link = guest.link
    assert link.call("HOOKS", deadlineMs=20000) == {}
    link.call("GENERATION", generation=5, json="{}")
    put_hook(guest, "20-second", "echo second >&2; exit 3")
    put_hook(guest, "10-first", 'echo "first $PERDURE_GENERATION $PATH"; env | grep -c =')
    put_hook(guest, "30-killed", "kill -15 $$")
    put_hook(guest, "40-loud", "seq 1 100000")
    put_hook(guest, "50-not", "touch wrong", mode=0o644)
    os.mkdir(guest.path("resume.d/60-folder"))
    os.symlink("10-first", guest.path("resume.d/70-link"))
    hooks = link.call("HOOKS", deadlineMs=60000)["hook"]
    names = [os.path.basename(hook["path"]) for hook in hooks]
    assert names == ["10-first", "20-second", "30-killed", "40-loud"]
    assert hooks[0]["bytes"].startswith(b"first 5 /usr/local/sbin:") and hooks[0]["exitCode"] == 0
    assert hooks[1]["bytes"] == b"second\n" and hooks[1]["exitCode"] == 3
    assert hooks[2]["signal"] == 15 and "exitCode" not in hooks[2]
    whole = b"".join(b"%d\n" % i for i in range(1, 100001))
    assert hooks[3]["bytes"] == whole[-4096:]


@test("HOOKS of a folder that is absent, or known to be empty, start no child, and miss no hook")
def _(guest):
    link = guest.link
    link.call("HOOKS")
    with without_children(guest):
        assert link.call("HOOKS") == {}
    folder = guest.path("resume.d")
    os.mkdir(folder)
    for _ in range(3):
        assert link.call("HOOKS") == {"size": 0}, "too new to be known"
    time.sleep(2.1)
    assert link.call("HOOKS") == {"size": 0}
    with without_children(guest):
        assert link.call("HOOKS") == {}
    put_hook(guest, "10-new", "echo new")
    assert [hook["bytes"] for hook in link.call("HOOKS")["hook"]] == [b"new\n"]
    os.unlink(f"{folder}/10-new")
    put_hook(guest, "20-later", "echo later", mode=0o644)
    time.sleep(2.1)
    assert link.call("HOOKS") == {"size": 1}
    os.chmod(f"{folder}/20-later", 0o755)
    assert [hook["bytes"] for hook in link.call("HOOKS")["hook"]] == [b"later\n"]
    # Another folder in its place, then a link to one: neither is taken for the one that was listed.
    os.unlink(f"{folder}/20-later")
    time.sleep(2.1)
    link.call("HOOKS")
    with without_children(guest):
        link.call("HOOKS")
    os.rename(folder, f"{folder}.old")
    put_hook(guest, "30-other", "echo other")
    assert [hook["bytes"] for hook in link.call("HOOKS")["hook"]] == [b"other\n"]
    os.rename(folder, f"{folder}.other")
    os.symlink(f"{folder}.other", folder)
    assert [hook["bytes"] for hook in link.call("HOOKS")["hook"]] == [b"other\n"]


@test("HOOKS end at their deadline and leave nothing running")
def _(guest):
    link = guest.link
    put_hook(guest, "10-quick", "echo quick")
    put_hook(guest, "20-slow", f"echo $$ > {guest.path('pid')}; echo slow; sleep 60 & sleep 60")
    put_hook(guest, "30-never", f"touch {guest.path('never')}")
    began = time.monotonic()
    # Long enough for the quick one on a busy host, and nothing like the sleep.
    stream = link.start("HOOKS", deadlineMs=4000)
    fails("too_many", link.call, "HOOKS", deadlineMs=4000)
    try:
        link.response(stream, 60)
        raise AssertionError("the hooks were in time")
    except Failed as failed:
        assert failed.status == "deadline_exceeded"
        assert [hook.get("signal") for hook in failed.fields["hook"]] == [None, 9]
        assert failed.fields["hook"][1]["bytes"] == b"slow\n"
    assert time.monotonic() - began < 50
    assert not os.path.exists(guest.path("never"))
    with open(guest.path("pid")) as file:
        assert not alive(int(file.read()))
    if guest.cgroup:
        until(lambda: open(f"{guest.cgroup}/hooks/cgroup.procs").read() == "")


@test("a request whose last byte could begin a RESYNC is answered all the same")
def _(guest):
    path = guest.path("caf\u00c9")  # in UTF-8 its last byte is the magic's first
    assert path.encode()[-1] == 0x89
    guest.link.write_file(path, b"x")
    assert guest.link.call("STAT", path=path)["kind"] == "file"


@test("random requests and frames do not stop the agent")
def _(guest):
    link = guest.link
    chance = random.Random(int(os.environ.get("SEED", "17")))
    # Nothing that would remove or move what is on this host.
    unsafe = {"EXEC", "FLUSH", "WRITE_FILE", "IDENTITY", "REMOVE_PATH", "MOVE_PATH", "MAKE_FOLDER"}
    safe = [op for op in OPS if op not in unsafe]
    values = {"path": [guest.path("a"), "/", "x"], "argv": ["true"], "user": ["root", "x"],
              "process": [0, 1, 2, 1 << 63], "signal": [0, 9, 15, 1 << 40], "tree": [0, 1],
              "offset": [0, 5, 1 << 63], "length": [0, 7, (1 << 64) - 1], "deadlineMs": [0, 5, 1 << 62],
              "generation": [1], "json": ["{}"], "stdin": [0, 1], "timeoutMs": [0, 1, 1 << 62],
              "size": [0, 3, 1 << 62], "logBytes": [4096, 1 << 24],
              "rows": [0, 24, 1 << 33], "columns": [80], "recursive": [0],
              "port": [0, 1, 9, 65535, 65536, 1 << 63]}
    for round_ in range(60):
        for _ in range(40):
            stream = chance.randrange(1, 40)
            kind = chance.choice([REQUEST] * 5 + [DATA, END, WINDOW, CANCEL])
            if kind == REQUEST:
                op = chance.choice(["EXEC", "WRITE_FILE"] + safe)
                fields = {name: chance.choice(options) for name, options in values.items()
                          if chance.random() < 0.6 and name != "argv"}
                if chance.random() < 0.8:
                    fields["argv"] = chance.choice([["true"], ["sleep", "1"], ["seq", "9999"], ["cat"]])
                payload = struct.pack("<H", OPS[op]) + encode_fields(fields)
            elif kind == WINDOW:
                payload = struct.pack("<I", chance.randrange(1 << 16))
            elif kind == CANCEL:
                payload = b""
            else:
                payload = b"\0\0" + chance.randbytes(chance.randrange(200))
            try:
                link.send(kind, stream, payload)
            except AssertionError:
                raise AssertionError(f"the agent hangs in round {round_}")
        link.resync()
    if guest.cgroup:
        link.call("THAW")


def main():
    import connect  # noqa: F401: each adds its tests
    import outbound  # noqa: F401
    import path  # noqa: F401
    import terminal  # noqa: F401
    import watch  # noqa: F401

    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    mount = cgroup_mount()
    failed = passed = 0
    began = time.monotonic()
    for title, needs, function in TESTS:
        if wanted not in title or (needs == "network" and not mount):
            continue
        for with_cgroup in ([True] if mount else []) + ([] if needs else [False]):
            cgroup = os.path.join(mount, f"perdure-test-{os.getpid()}") if with_cgroup else None
            label = title + ("" if with_cgroup else " (no cgroups)")
            guest = Guest(cgroup, needs == "network")
            problem = None
            started = time.monotonic()
            try:
                function(guest)
            except Exception:
                problem = traceback.format_exc()
            try:
                guest.close()
            except Exception as error:
                problem = (problem or "") + f"closing: {error}"
            if problem:
                failed += 1
                print(f"FAILED {label}\n{problem}", flush=True)
            else:
                passed += 1
                if wanted or os.environ.get("VERBOSE"):
                    print(f"ok {label}, {time.monotonic() - started:.1f} s")
    if not mount:
        print("end-to-end: no cgroup2 mount or not root: the freezer was not tested")
    print(f"end-to-end: {passed} passed, {failed} failed, {time.monotonic() - began:.1f} s")
    sys.exit(1 if failed else 0)


main()
