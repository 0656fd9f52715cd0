"""Programs on a terminal, end to end."""

import os
import random
import struct

from harness import SH, fails, read_over_epochs, test, until
from link import CANCEL, DATA, END, WINDOW


def typed(link, process, data, end=False):
    stream = link.start("STDIN", process=process)
    link.response(stream)
    assert link.take(stream)[0] == WINDOW
    if data:
        link.send(DATA, stream, data)
    if not end:
        link.send(CANCEL, stream)
        return
    link.send(END, stream, struct.pack("<H", 0))
    assert link.take(stream) == (END, struct.pack("<H", 0))


def shown(reader, text):
    while text not in reader.out:
        assert reader.step(), reader.out


@test("a terminal is the program's own: session, size, names, settings")
def _(guest):
    link = guest.link
    script = "tty; stty size; test -t 0 && test -t 1 && test -t 2; echo $? $TERM; cat /proc/$$/stat"
    process = link.spawn(SH + [script], rows=7, columns=4096)
    reader = link.attach(process)
    assert reader.read_to_end()["exitCode"] == 0
    lines = reader.out.decode().replace("\r\n", "\n").splitlines()
    assert lines[0].startswith("/dev/pts/") and lines[1:3] == ["7 4096", "0 xterm-256color"], lines
    pid, _, session, terminal, foreground = (lines[3].split()[i] for i in (0, 4, 5, 6, 7))
    assert pid == session == foreground and terminal != "0", lines[3]
    assert reader.err == b""
    out, _, _ = link.run(SH + ["echo $TERM"], rows=1, columns=1, env=["TERM=dumb"])
    assert out == b"dumb\r\n"
    out, _, _ = link.run(SH + ["echo $TERM; test -t 0"])
    assert out == b"\n", "only a terminal has a TERM"
    for size in [{"rows": 0, "columns": 80}, {"rows": 24}, {"rows": 24, "columns": 4097}]:
        fails("bad_request", link.call, "EXEC", argv=["true"], **size)
    assert len(os.listdir("/dev/pts")) == len(guest.terminals), "terminals are given back"


@test("a terminal belongs to the user")
def _(guest):
    if os.geteuid() != 0:
        return
    script = "stat -L -c '%U %a' /dev/stdin; echo again >/dev/tty"
    out, _, exit_fields = guest.link.run(SH + [script], user="daemon", rows=24, columns=80)
    assert out == b"daemon 620\r\nagain\r\n" and exit_fields["exitCode"] == 0, (out, exit_fields)


@test("a terminal that is resized tells its program")
def _(guest):
    link = guest.link
    script = "trap 'stty size' WINCH; echo up; while :; do sleep 0.02; done"
    process = link.spawn(SH + [script], rows=24, columns=80)
    reader = link.attach(process)
    shown(reader, b"up\r\n")
    link.call("RESIZE", process=process, rows=50, columns=132)
    shown(reader, b"50 132\r\n")
    fails("bad_request", link.call, "RESIZE", process=process, rows=50)
    fails("bad_request", link.call, "RESIZE", process=process, rows=0, columns=5)
    fails("process_not_found", link.call, "RESIZE", process=99, rows=5, columns=5)
    piped = link.spawn(["sleep", "60"])
    fails("not_supported", link.call, "RESIZE", process=piped, rows=5, columns=5)
    link.call("SIGNAL", process=process, signal=9, tree=True)
    reader.read_to_end()
    fails("process_ended", link.call, "RESIZE", process=process, rows=5, columns=5)


@test("what is typed is shown, and its signals reach the foreground and nobody else")
def _(guest):
    link = guest.link
    process = link.spawn(["bash", "--norc", "-i"], rows=24, columns=80, env=["PS1=> "])
    reader = link.attach(process)
    shown(reader, b"> ")
    typed(link, process, b"sleep 61 & echo jobs: $!\r")
    shown(reader, b"jobs: ")
    shown(reader, b"> ")
    typed(link, process, b"sleep 62; echo after-$?\r")
    until(lambda: in_foreground(link, process, b"sleep\x0062"))
    typed(link, process, b"\x03")
    shown(reader, b"^C")
    typed(link, process, b"jobs; kill %1; exit 7\r")
    assert reader.read_to_end()["exitCode"] == 7
    assert b"Running" in reader.out and b"after-" not in reader.out.split(b"^C")[1], reader.out


def in_foreground(link, process, command):
    """Whether the terminal's foreground group runs this."""
    pid = link.call("PROCESSES", process=process - 1)["entry"][0]["pid"]
    with open(f"/proc/{pid}/stat") as stat:
        group = stat.read().rsplit(")", 1)[1].split()[5]
    try:
        with open(f"/proc/{group}/cmdline", "rb") as file:
            return file.read().startswith(command)
    except OSError:
        return False


@test("the end of stdin types the end of file once, after what was typed before")
def _(guest):
    link = guest.link
    for data, seen in [(b"", b""), (b"line\n", b"line\r\nline\r\n"), (b"half", b"halfhalf")]:
        for _ in range(5):
            process = link.spawn(["cat"], rows=24, columns=80)
            reader = link.attach(process)
            typed(link, process, data, end=True)
            assert reader.read_to_end() == {"exitCode": 0, "timedOut": 0}, "ended by its own code"
            assert reader.out == seen, reader.out
    # What reads on after it waits: it was no hang-up. Nothing more is taken.
    process = link.spawn(SH + ["cat; echo between; exec cat"], rows=24, columns=80)
    reader = link.attach(process)
    typed(link, process, b"", end=True)
    shown(reader, b"between\r\n")
    assert link.call("PROCESSES", process=process - 1)["entry"][0]["running"] == 1
    fails("stdin_closed", link.call, "STDIN", process=process)
    # Without lines it is a character like others, typed once.
    process = link.spawn(SH + ["stty raw -echo; echo up; dd bs=1 count=3 2>/dev/null | od -An -tx1"],
                         rows=24, columns=80)
    reader = link.attach(process)
    shown(reader, b"up")
    typed(link, process, b"ab", end=True)
    assert reader.read_to_end()["exitCode"] == 0
    assert b"61 62 04" in reader.out, reader.out


@test("much typed into a terminal waits for its reader, much said by it for its own")
def _(guest):
    link = guest.link
    data = b"".join(b"%07d\n" % i for i in range(40000))
    script = "stty -echo -onlcr; echo up; exec head -c %d" % len(data)
    process = link.spawn(SH + [script], rows=24, columns=80, logBytes=65536)
    reader = link.attach(process)
    shown(reader, b"up\n")
    stream = link.start("STDIN", process=process)
    link.response(stream)
    credit = 0
    view = memoryview(data)
    while view:
        while credit == 0:
            if not link.frames.get(stream):
                assert reader.step(), "ended early"
                continue
            kind, payload = link.take(stream)
            assert kind == WINDOW
            credit += struct.unpack("<I", payload)[0]
        part = view[: min(credit, 8192)]
        link.send(DATA, stream, bytes(part))
        credit -= len(part)
        view = view[len(part) :]
    assert reader.read_to_end()["exitCode"] == 0
    assert reader.out == b"up\n" + data and not reader.cuts


@test("a terminal's output is read on by offset after RESYNC, without gap or repeat")
def _(guest):
    link = guest.link
    script = "stty -onlcr; i=0; while [ $i -lt 2000 ]; do i=$((i+1)); echo line $i; done"
    process = link.spawn(SH + [script], rows=24, columns=80)
    expected = b"".join(b"line %d\n" % i for i in range(1, 2001))
    got, _, epochs = read_over_epochs(link, process, random.Random(11))
    assert got == expected and epochs > 3, (len(got), epochs)


@test("SIGKILL with tree takes all of a terminal's session")
def _(guest):
    link = guest.link
    script = "sleep 301 & (trap '' HUP; exec sleep 301) & echo up; exec sleep 301"
    process = link.spawn(SH + [script], rows=24, columns=80)
    reader = link.attach(process)
    shown(reader, b"up\r\n")
    link.call("SIGNAL", process=process, signal=9, tree=True, deadlineMs=5000)
    assert not os.popen("pgrep -f '^sleep 301$'").read(), "something is still there"
    assert reader.read_to_end()["signal"] == 9
    # One that lets go of its terminal before it ends is not hung up, and left-overs go on on it.
    process = link.spawn(SH + ["(sleep 0.4; echo late) & exec 0<&- 1>&- 2>&-; sleep 0.2; exit 5"],
                         rows=24, columns=80)
    reader = link.attach(process)
    assert reader.read_to_end() == {"exitCode": 5, "timedOut": 0}
    process = link.spawn(SH + ["trap '' HUP; (sleep 0.6; echo late) & exit 3"], rows=24, columns=80)
    assert link.attach(process).read_to_end()["exitCode"] == 3
    until(lambda: link.call("PROCESSES", process=process - 1)["entry"][0]["logEnd"] == 6)
    link.call("FORGET", process=process)


@test("a program that cannot be started on a terminal says why, and leaves nothing")
def _(guest):
    link = guest.link
    for _ in range(20):
        message = fails("exec_failed", link.call, "EXEC", argv=["/nowhere/x"], rows=24, columns=80)
        assert message.startswith("ENOENT")
        fails("user_not_found", link.call, "EXEC", argv=["true"], user="none", rows=24, columns=80)
    assert link.call("PROCESSES") == {}
    until(lambda: len(os.listdir("/dev/pts")) == len(guest.terminals))
