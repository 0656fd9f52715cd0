#!/usr/bin/env python3
"""The guest agent in a real VM (QEMU, software emulation). About a minute.

    vm-test.py KERNEL-FOLDER BUSYBOX

KERNEL-FOLDER is an unpacked kernel package (boot/, lib/modules/), BUSYBOX a static busybox.
"""

import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from link import CANCEL, DATA, Failed, Records  # noqa: E402
from vm import Vm  # noqa: E402

SH = ["/bin/sh", "-c"]


def say(text):
    print(f"  {text}", flush=True)


def shell(link, script, **fields):
    out, err, exit_fields = link.run(SH + [script], **fields)
    assert exit_fields.get("exitCode") == 0, (script, out, err, exit_fields)
    return out.decode()


def stats(link):
    return {stat["name"]: stat["value"] for stat in link.call("STATS")["stat"]}


def agent_cpu_ticks(link):
    words = shell(link, "cat /proc/1/stat").rsplit(")", 1)[1].split()
    return int(words[11]) + int(words[12])


def test_boot(link, vm):
    info = link.call("INFO")
    assert info["bootId"] == shell(link, "cat /proc/sys/kernel/random/boot_id").strip()
    assert "127.0.0.1" in shell(link, "ip addr") and "LOWER_UP" in shell(link, "ip addr")
    assert shell(link, "cat /proc/self/cgroup").startswith("0::/workload/p")
    assert shell(link, "cat /proc/1/cgroup") == "0::/agent\n"
    assert shell(link, "cat /proc/1/oom_score_adj /proc/self/oom_score_adj") == "-1000\n0\n"
    controllers = shell(link, "cat /sys/fs/cgroup/workload/cgroup.controllers").split()
    assert {"cpu", "memory", "pids"} <= set(controllers), controllers
    assert "is ready" in vm.console()
    say(f"boots; agent uses {shell(link, 'grep VmRSS /proc/1/status').split()[1]} KiB")


def test_users(link):
    assert shell(link, "id -u; id -g; pwd; echo $HOME", user="user") == (
        "1000\n1000\n/home/user\n/home/user\n")
    link.write_file("/home/user/mine", b"x", user="user")
    assert link.call("STAT", path="/home/user/mine")["uid"] == 1000
    try:
        link.write_file("/root/not-mine", b"x", user="user")
        raise AssertionError("a user wrote into /root")
    except Failed as failed:
        assert failed.status == "path_denied", failed
    shell(link, "echo again >/dev/stderr", user="user")
    say("programs and files have the user's ids")


def test_freezer(link):
    process = link.spawn(SH + ["i=0; while :; do i=$((i+1)); echo $i; done"], logBytes=65536,
                         timeoutMs=6000)
    time.sleep(0.5)
    began = time.monotonic()
    link.call("FREEZE", deadlineMs=5000)
    freeze_ms = (time.monotonic() - began) * 1000
    ends = set()
    for _ in range(5):
        ends.add(link.call("PROCESSES", process=process - 1)["entry"][0]["logEnd"])
        time.sleep(0.1)
    assert len(ends) <= 2, "the workload runs on"
    time.sleep(6)
    entry = link.call("PROCESSES", process=process - 1)["entry"][0]
    assert entry["running"] == 1, "a time-out struck while frozen"
    assert link.call("INFO")["frozen"] == 1
    began = time.monotonic()
    link.call("THAW")
    thaw_ms = (time.monotonic() - began) * 1000
    time.sleep(0.3)
    assert link.call("PROCESSES", process=process - 1)["entry"][0]["logEnd"] > max(ends)
    link.call("SIGNAL", process=process, signal=9, tree=True)
    for _ in range(20):
        link.call("FREEZE", deadlineMs=5000)
        link.call("THAW")
    say(f"freezes in {freeze_ms:.0f} ms, thaws in {thaw_ms:.0f} ms, time-outs pause")


def test_clock(link):
    skew = link.call("PING")["realtimeNs"] / 1e9 - time.time()
    link.call("CLOCK_ADJUST", deltaNs=3600 * 10**9 + 123456789)
    after = int(shell(link, "date +%s")) - time.time()
    assert 3598 < after - skew < 3602, (skew, after)
    moved = link.call("CLOCK_ADJUST", deltaNs=-(3600 * 10**9 + 123456789))["realtimeNs"]
    assert abs(moved / 1e9 - time.time() - skew) < 1
    link.call("CLOCK_ADJUST", deltaNs=-1)
    say("the clock moves forth and back")


def test_entropy(link):
    for size in (32, 512):
        link.call("ENTROPY", bytes=os.urandom(size))
    first, second = (shell(link, "head -c 16 /dev/urandom | od -An -tx1") for _ in range(2))
    assert first != second
    say("entropy is taken")


def timers(link):
    return [(t["name"], t["dueInMs"]) for t in link.call("TIMERS").get("timer", [])]


def test_timers(link):
    assert timers(link) == [], timers(link)
    long = link.spawn(["sleep", "1000"])
    short = link.spawn(SH + ["exec sleep 50"])
    forever = link.spawn(["cat", "/dev/ttyS0"])  # waits, but not for a time
    time.sleep(0.5)
    found = timers(link)
    assert [name for name, _ in found] == ["sleep", "sleep"], found
    assert 45000 < found[0][1] <= 50000 and 990000 < found[1][1] <= 1000000, found
    link.call("FREEZE")
    link.call("THAW")
    again = timers(link)
    assert len(again) == 2 and 990000 < again[1][1] < found[1][1], again
    for process in (long, short, forever):
        link.call("SIGNAL", process=process, signal=9, tree=True)
    say(f"armed timers are found: {found}")


def test_identity(link):
    kernels = link.call("INFO")["bootId"]
    for number in (1, 2):
        machine_id = f"{number:032x}"
        boot_id = f"0000000{number}-89ab-cdef-0123-456789abcdef"
        shell(link, "mkdir -p /etc/ssh")
        link.call("IDENTITY", hostname=f"fork-{number}", machineId=machine_id, bootId=boot_id,
                  file=[{"path": "/etc/ssh/key", "mode": 0o600, "bytes": b"key"}])
        text = shell(link, "hostname; cat /etc/hostname /etc/machine-id; "
                           "cat /proc/sys/kernel/random/boot_id; stat -c %a /etc/ssh/key",
                     user="root")
        assert text == f"fork-{number}\nfork-{number}\n{machine_id}\n{boot_id}\n600\n", text
    assert shell(link, "grep -c boot_id /proc/mounts") == "1\n"
    assert link.call("INFO")["bootId"] == kernels
    link.call("GENERATION", generation=9, json='{"generation":9}')
    assert shell(link, "cat /run/perdure/generation /run/perdure/resume.json",
                 user="user") == '9\n{"generation":9}'
    say("identity and generation are the host's")


def test_hooks(link):
    shell(link, "mkdir -p /etc/perdure/resume.d")
    hook = b"#!/bin/sh\necho $PERDURE_GENERATION; cat /proc/self/cgroup; sleep 100 & exit 4\n"
    link.write_file("/etc/perdure/resume.d/10-hook", hook, mode=0o755)
    link.call("FREEZE")  # hooks run while the workload is frozen
    began = time.monotonic()
    (result,) = link.call("HOOKS", deadlineMs=2000)["hook"]
    took = time.monotonic() - began
    link.call("THAW")
    assert result["bytes"] == b"9\n0::/hooks\n" and result["exitCode"] == 4, result
    assert took < 1.9, took
    time.sleep(max(0, 2.2 - took))
    assert shell(link, "cat /sys/fs/cgroup/hooks/cgroup.procs") == ""
    say(f"hooks run beside a frozen workload ({took * 1000:.0f} ms), and end at the deadline")


def test_flush_and_caches(link):
    link.call("FLUSH", deadlineMs=5000)
    link.call("DROP_CACHES", deadlineMs=20000)
    figures = stats(link)
    assert 0 < figures["memAvailableBytes"] < figures["memTotalBytes"]
    assert figures["cpuUsec"] > 0
    say(f"stats: {figures}")


def test_host_comes_and_goes(vm, link):
    process = link.spawn(SH + ["i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo line $i; done"],
                         logBytes=1 << 20)
    expected = b"".join(b"line %d\n" % i for i in range(1, 20001))
    got = b""
    exit_fields = None
    connections = 0
    while exit_fields is None:
        # Not hundreds of connections: each that QEMU closes while guest bytes wait costs an entry of
        # the port's ring (128), for good.
        reader = link.attach(process, offset=len(got))
        until = time.monotonic() + 0.1
        while time.monotonic() < until:
            if not reader.step():
                exit_fields = reader.exit
                break
        got += reader.out
        if exit_fields is None:
            link.sock.close()
            link = vm.connect()
            link.resync()
            connections += 1
    assert got == expected and exit_fields["exitCode"] == 0
    assert connections >= 5, connections
    # Away with a reader attached: the process goes on, and the agent sleeps.
    process = link.spawn(SH + ["sleep 1; for i in 1 2 3 4 5 6 7 8; do cat /bin/busybox; done; sleep 60"],
                         logBytes=65536)
    link.attach(process, window=100)
    before = agent_cpu_ticks(link)
    link.sock.close()
    time.sleep(6)
    link = vm.connect()
    link.resync()
    entry = link.call("PROCESSES", process=process - 1)["entry"][0]
    size = link.call("STAT", path="/bin/busybox")["size"]
    assert entry["logEnd"] == 8 * size, (entry, size)
    middle = agent_cpu_ticks(link)
    link.sock.close()
    time.sleep(5)
    link = vm.connect()
    link.resync()
    idle_ticks = agent_cpu_ticks(link) - middle
    assert idle_ticks <= 10, f"{idle_ticks} ticks in 5 s away: the agent spins"
    link.call("SIGNAL", process=process, signal=9, tree=True)
    say(f"{connections} connections without gap or repeat; 5 s without a host cost {idle_ticks} "
        f"ticks, 8 files of output to nobody {middle - before}")
    return link


def test_unread_link_and_stop(vm, link):
    """A host that goes away in the middle of a flood, and a VM that is stopped meanwhile."""
    process = link.spawn(["yes"], logBytes=1 << 20)
    for _ in range(5):
        reader = link.attach(process, window=1 << 20)
        time.sleep(0.3)  # nothing is read here: the port is full in the middle of a frame
        os.kill(vm.process.pid, signal.SIGSTOP)
        link.sock.close()
        time.sleep(0.2)
        os.kill(vm.process.pid, signal.SIGCONT)
        link = vm.connect()
        link.resync()
        link.call("PING")
        assert not any(kind == DATA for kind, _ in link.log), "DATA of an old epoch"
    link.call("SIGNAL", process=process, signal=9, tree=True)
    assert reader
    say("a flooded port is clean after every RESYNC")
    return link


def test_fork_bomb(link):
    script = "bomb() { bomb | bomb & }; bomb; sleep 60"
    process = link.spawn(SH + [script])
    time.sleep(3)
    link.call("FLUSH", deadlineMs=20000)
    link.call("STAT", path="/")
    began = time.monotonic()
    link.call("SIGNAL", process=process, signal=9, tree=True, deadlineMs=20000, timeout=25)
    took = time.monotonic() - began
    link.run(["true"])
    say(f"a fork bomb leaves the agent working and is gone in {took:.1f} s")


def test_dead_port(vm, link):
    """QEMU loses an entry of the port's ring at every close with bytes waiting: 128, and it is dead."""
    process = link.spawn(["yes"], logBytes=1 << 20)
    stuck = 0
    for _ in range(135):
        link.attach(process, window=1 << 20)
        time.sleep(0.1)
        link.sock.close()
        deadline = time.monotonic() + 20
        while True:
            link = vm.connect()
            try:
                link.resync(2)
                break
            except AssertionError:
                stuck += 1
                link.sock.close()
                assert time.monotonic() < deadline, "the port stays dead"
    link.call("SIGNAL", process=process, signal=9, tree=True)
    assert stuck > 0 and "binding its driver anew" in vm.console()
    say("a dead port is put into operation again")
    return link


def test_bulk(link):
    data = os.urandom(8 << 20)
    began = time.monotonic()
    link.write_file("/tmp/bulk", data)
    middle = time.monotonic()
    assert link.read_file("/tmp/bulk")[1] == data
    end = time.monotonic()
    shell(link, "rm /tmp/bulk")
    say(f"8 MiB in {middle - began:.2f} s, out {end - middle:.2f} s")


def test_trees(link):
    script = ("for i in 1 2 3 4 5 6 7 8 9 10; do (setsid sleep 300 & setsid sleep 300 &) ; done; "
              "echo up; sleep 300")
    process = link.spawn(SH + [script])
    link.attach(process).step()
    began = time.monotonic()
    link.call("SIGNAL", process=process, signal=9, tree=True, deadlineMs=5000)
    took = time.monotonic() - began
    assert "sleep" not in shell(link, "ps | grep sleep | grep -v grep || true")
    for _ in range(30):
        assert link.run(["true"])[2]["exitCode"] == 0
    names = shell(link, "ls /sys/fs/cgroup/workload | grep '^p[0-9]'").split()
    assert len(names) == 1, names  # the listing itself
    assert "Z" not in shell(link, "for s in /proc/[0-9]*/stat; do cut -d' ' -f3 $s; done 2>/dev/null"
                                  " || cat /proc/[0-9]*/stat | grep -c ' Z ' || true")
    say(f"a tree of 21 processes is gone in {took * 1000:.0f} ms; no zombies, no cgroups left")


def test_latency(link):
    link.run(["true"])
    times = []
    for _ in range(10):
        began = time.monotonic()
        link.run(["true"])
        times.append((time.monotonic() - began) * 1000)
    ping = []
    for _ in range(20):
        began = time.monotonic()
        link.call("PING")
        ping.append((time.monotonic() - began) * 1000)
    say(f"PING {sorted(ping)[10]:.1f} ms, true {sorted(times)[5]:.0f} ms")


def typed(link, process, data):
    stream = link.start("STDIN", process=process)
    link.response(stream)
    link.take(stream)
    link.send(DATA, stream, data)
    link.send(CANCEL, stream)


def shown(reader, text):
    while text not in reader.out:
        assert reader.step(60), reader.out


def test_terminal(link, vm):
    process = link.spawn(["sh"], user="user", rows=30, columns=90, env=["PS1=> "])
    reader = link.attach(process)
    shown(reader, b"> ")
    typed(link, process, b"tty; stat -c '%u %g %a' $(tty); stty size\r")
    shown(reader, b"/dev/pts/0\r\n1000 5 620\r\n30 90\r\n")
    link.call("RESIZE", process=process, rows=31, columns=91)
    typed(link, process, b"stty size; echo x >/dev/tty; cat\r")
    shown(reader, b"31 91\r\nx\r\n")
    typed(link, process, b"\x04echo after cat; sleep 100\r")
    shown(reader, b"after cat\r\n")
    # The host goes and comes back; the CPUs stand still in between, as when it sleeps.
    at = reader.offset
    vm.monitor("stop")
    link.sock.close()
    again = vm.connect()
    vm.monitor("cont")
    again.resync(60)
    typed(again, process, b"\x03")
    reader = again.attach(process, offset=at)
    shown(reader, b"^C")
    typed(again, process, b"echo $((6 * 7)); exit 3\r")
    assert reader.read_to_end(60)["exitCode"] == 3
    assert b"42\r\n" in reader.out and b"after cat" not in reader.out, reader.out
    say("terminals: the user's own, with signals, sizes and an offset that lasts")
    return again


def test_paths_and_watches(link):
    fields = {"user": "user"}
    link.call("MAKE_FOLDER", path="/home/user/a/b", parents=True, **fields)
    watch = Records(link, "WATCH", path="/home/user", recursive=True, **fields)
    shell(link, "echo x > a/b/f; mv a c", user="user")
    kinds = []
    while not kinds or kinds[-1] != ("moved", "/home/user/c"):
        record = watch.take(60)
        kinds.append((record["kind"], record["path"]))
    assert kinds[0] == ("created", "/home/user/a/b/f"), kinds
    watch.leave()
    link.call("MOVE_PATH", path="/home/user/c/b/f", target="/home/user/g", **fields)
    records = Records(link, "LIST_FOLDER", path="/home/user", **fields).rest()
    owners = {record["name"]: record["uid"] for record in records}
    assert owners["c"] == owners["g"] == 1000 and "a" not in owners, owners
    link.call("REMOVE_PATH", path="/home/user/c", recursive=True, **fields)
    link.call("REMOVE_PATH", path="/home/user/g", **fields)
    for path, status in [("/proc", "path_crosses_mount"), ("/dev/shm", "path_crosses_mount"),
                         ("/", "bad_request")]:
        try:
            link.call("REMOVE_PATH", path=path, recursive=True)
            raise AssertionError(f"{path} was removed")
        except Failed as failed:
            assert failed.status == status, failed
    say("folders, paths and watches")


def forks(link):
    return int(shell(link, "grep ^processes /proc/stat").split()[1])


def test_cheap_questions(link):
    process = link.spawn(["sleep", "4321"])
    pid = link.call("PROCESSES", process=process - 1)["entry"][0]["pid"]
    time.sleep(1)
    assert pid in [timer["pid"] for timer in link.call("TIMERS")["timer"]]
    ticks = agent_cpu_ticks(link)
    before = forks(link)
    for _ in range(50):
        timers = link.call("TIMERS")["timer"]
        assert [timer["dueInMs"] // 100000 for timer in timers if timer["pid"] == pid] == [43], timers
        assert len(link.call("ACTIVITY")["stat"]) == 5
    made = forks(link) - before
    ticks = agent_cpu_ticks(link) - ticks
    assert made < 20, f"{made} children for 100 questions"
    link.call("SIGNAL", process=process, signal=9, tree=True)
    say(f"50 times timers and activity: {ticks} ticks of the agent, no child")


def initramfs(kernel, busybox):
    vm = Vm(kernel, busybox)
    try:
        link = vm.connect()
        began = time.monotonic()
        link.resync(60)
        say(f"initramfs: answers {time.monotonic() - began:.1f} s after the start")
        test_boot(link, vm)
        test_timers(link)
        test_users(link)
        test_freezer(link)
        test_clock(link)
        test_entropy(link)
        test_identity(link)
        test_hooks(link)
        test_flush_and_caches(link)
        test_bulk(link)
        test_trees(link)
        test_latency(link)
        test_paths_and_watches(link)
        test_cheap_questions(link)
        link = test_terminal(link, vm)
        link = test_host_comes_and_goes(vm, link)
        link = test_unread_link_and_stop(vm, link)
        link = test_dead_port(vm, link)
        test_trees(link)
        test_fork_bomb(link)
    except BaseException:
        print(vm.console()[-3000:])
        raise
    finally:
        vm.close()


def disk(kernel, busybox):
    vm = Vm(kernel, busybox, disk_mib=160)
    try:
        link = vm.connect()
        link.resync(60)
        assert shell(link, "hostname") == "from-disk\n"
        assert " / ext4 rw,noatime" in shell(link, "mount -t ext4 || cat /proc/mounts") or (
            "/dev/vda / ext4 rw,noatime" in shell(link, "cat /proc/mounts"))
        total = stats(link)["diskTotalBytes"]
        assert total > 140 << 20, f"not grown: {total}"
        assert shell(link, "ls /init /modules 2>/dev/null || true") == ""
        assert shell(link, "id -G", user="user") == "1000 50\n"
        link.write_file("/root/written", b"durable" * 1000)
        link.spawn(SH + ["trap 'echo bye > /root/bye; exit' TERM; echo up; while :; do sleep 1; done"])
        link.spawn(SH + ["trap '' TERM; while :; do sleep 1; done"])
        link.spawn(SH + ["trap '' TERM; trap 'echo hup > /root/hup; exit' HUP; while :; do sleep 1; done"],
                   rows=24, columns=80)
        time.sleep(0.5)
        assert stats(link)["diskWriteBytes"] > 0
        link.call("FREEZE")
        began = time.monotonic()
        link.call("SHUTDOWN", deadlineMs=2000, timeout=30)
        vm.process.wait(20)
        took = time.monotonic() - began
        image = os.path.join(vm.folder, "disk.img")
        check = subprocess.run(["e2fsck", "-fn", image], capture_output=True, text=True)
        assert check.returncode == 0, check.stdout
        for path, text in [("/root/bye", "bye\n"), ("/root/hup", "hup\n"), ("/root/written", "durable" * 1000)]:
            read = subprocess.run(["debugfs", "-R", f"cat {path}", image], capture_output=True,
                                  text=True)
            assert read.stdout == text, read
        say(f"disk: grown to {total >> 20} MiB; shut down in {took:.1f} s with a clean file system")
    except BaseException:
        print(vm.console()[-3000:])
        raise
    finally:
        vm.close()


def failing_boot(kernel, busybox):
    vm = Vm(kernel, busybox, options="perdure.root=/dev/nothing", root_option=False)
    try:
        vm.process.wait(60)
        assert "boot failed: there is no /dev/nothing" in vm.console(), vm.console()
        say("a boot that fails says why and powers off")
    finally:
        vm.close()


def main():
    kernel, busybox = sys.argv[1:3]
    began = time.monotonic()
    initramfs(kernel, busybox)
    disk(kernel, busybox)
    failing_boot(kernel, busybox)
    print(f"vm-test: passed in {time.monotonic() - began:.0f} s")


main()
