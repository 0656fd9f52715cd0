"""Folders and paths, end to end."""

import os
import shutil
import subprocess
import sys
import tempfile

from harness import alive, fails, make_file, test, until
from link import Failed, Records


def listed(link, path, **fields):
    records = Records(link, "LIST_FOLDER", path=path, **fields).rest()
    assert len({record["name"] for record in records}) == len(records)
    return {record["name"]: record for record in records}


@test("LIST_FOLDER tells each entry with its facts, links and odd names included")
def _(guest):
    link = guest.link
    folder = guest.path("folder")
    os.makedirs(f"{folder}/sub")
    with open(f"{folder}/file", "w") as file:
        file.write("12345")
    os.chmod(f"{folder}/file", 0o4750)
    os.symlink("../nowhere/at all", f"{folder}/link")
    os.mkfifo(f"{folder}/pipe")
    odd = os.fsencode(folder) + b"/odd\xff\nname"
    open(odd, "w").close()
    found = listed(link, folder)
    assert set(found) == {"sub", "file", "link", "pipe", "odd\ufffd\nname"}
    facts = link.call("STAT", path=f"{folder}/file")
    assert {**facts, "name": "file"} == found["file"] and facts["mode"] == 0o4750
    assert found["link"]["kind"] == "link" and found["link"]["target"] == "../nowhere/at all"
    assert [found[name]["kind"] for name in ("sub", "pipe")] == ["directory", "other"]
    assert "target" not in found["file"]
    assert listed(link, f"{folder}/sub") == {} and set(listed(link, folder + "//")) == set(found)
    os.symlink(folder, guest.path("to-folder"))
    fails("path_is_link", listed, link, guest.path("to-folder"))
    fails("path_is_link", listed, link, guest.path("to-folder/sub"))
    fails("path_not_found", listed, link, f"{folder}/none")
    fails("path_not_found", listed, link, f"{folder}/file/below")
    fails("path_not_folder", listed, link, f"{folder}/file")
    fails("bad_request", listed, link, "folder")
    if os.geteuid() == 0:
        os.chmod(f"{folder}/sub", 0o700)
        fails("path_denied", listed, link, f"{folder}/sub", user="daemon")


@test("LIST_FOLDER of a large folder is sent as it is asked for, and can be left")
def _(guest):
    link = guest.link
    names = {f"{i}-{'n' * 200}" for i in range(5000)}
    os.mkdir(guest.path("large"))
    for name in names:
        open(guest.path(f"large/{name}"), "w").close()
    assert set(listed(link, guest.path("large"))) == names
    records = Records(link, "LIST_FOLDER", path=guest.path("large"), window=100)
    assert link.take(records.stream)[1].__len__() == 100
    assert link.quiet(records.stream), "more than was asked for"
    with open(f"/proc/{guest.process.pid}/task/{guest.process.pid}/children") as file:
        child = int(file.read())
    with open(f"/proc/{child}/status") as status:
        assert "VmHWM" in status.read()
    records.leave()
    until(lambda: not alive(child))
    link.call("PING")


@test("MAKE_FOLDER makes one folder, or what is missing, and follows no link")
def _(guest):
    link = guest.link

    def make(name, status=None, **fields):
        call = (link.call,) if status is None else (fails, status, link.call)
        call[0](*call[1:], "MAKE_FOLDER", path=guest.path(name), **fields)

    make("one", mode=0o2751)
    assert os.stat(guest.path("one")).st_mode & 0o7777 == 0o2751
    make("plain")
    assert os.stat(guest.path("plain")).st_mode & 0o7777 == 0o755
    make("one", "path_exists", mode=0o755)
    make("a/b/c", "path_not_found")
    make("a/b/c", mode=0o700, parents=True)
    modes = [os.stat(guest.path(name)).st_mode & 0o777 for name in ("a", "a/b", "a/b/c")]
    assert modes == [0o755, 0o755, 0o700]
    make("a/b/c/", mode=0o777, parents=True)
    assert os.stat(guest.path("a/b/c")).st_mode & 0o777 == 0o700, "what is there stays"
    make("a//b/./d///", parents=True)
    assert sorted(os.listdir(guest.path("a/b"))) == ["c", "d"]
    with open(guest.path("file"), "w"):
        pass
    make("file", "path_exists", parents=True)
    make("file/x", "path_not_found", parents=True)
    os.symlink("a", guest.path("to-a"))
    make("to-a/x", "path_is_link", parents=True)
    make("to-a/x", "path_is_link")
    make("to-a", "path_is_link", parents=True)
    make("to-a", "path_exists")
    assert sorted(os.listdir(guest.path("a"))) == ["b"]
    make("n" * 256, "bad_request", parents=True)
    fails("path_exists", link.call, "MAKE_FOLDER", path="/")
    link.call("MAKE_FOLDER", path="/", parents=True)
    if os.geteuid() == 0:
        make("a/theirs", "path_denied", user="daemon")
        os.chown(guest.path("a/b"), 1, 1)
        make("a/b/theirs/deeper", user="daemon", parents=True)
        assert os.stat(guest.path("a/b/theirs/deeper")).st_uid == 1


@test("MOVE_PATH is atomic, replaces only when told, and stays on its file system")
def _(guest):
    link = guest.link

    def move(old, new, status=None, **fields):
        call = (link.call,) if status is None else (fails, status, link.call)
        return call[0](*call[1:], "MOVE_PATH", path=guest.path(old), target=guest.path(new), **fields)

    for name in ("a", "b"):
        with open(guest.path(name), "w") as file:
            file.write(name)
    move("a", "b", "path_exists")
    assert open(guest.path("b")).read() == "b"
    move("a", "b", replace=True)
    assert open(guest.path("b")).read() == "a" and not os.path.exists(guest.path("a"))
    message = move("none", "x", "path_not_found")
    assert message == (f'Cannot move "{guest.path("none")}" to "{guest.path("x")}": '
                       "No such file or directory"), message
    move("b", "none/x", "path_not_found")
    os.makedirs(guest.path("full/in"))
    os.mkdir(guest.path("empty"))
    move("empty", "full", "path_not_empty", replace=True)
    move("b", "empty", "path_is_directory", replace=True)
    move("empty", "b", "path_not_folder", replace=True)
    move("full", "full/in/x", "bad_request")
    move("full", "empty", replace=True)
    assert os.listdir(guest.path("empty")) == ["in"]
    # A link is moved itself, and none is followed on the way.
    os.symlink("empty", guest.path("link"))
    assert move("link/in", "x", "path_is_link").endswith(f'link in "{guest.path("link/in")}"')
    move("b", "link/x", "path_is_link")
    move("link", "moved-link")
    assert os.readlink(guest.path("moved-link")) == "empty"
    move("b", "moved-link", replace=True)
    assert open(guest.path("moved-link")).read() == "a" and os.listdir(guest.path("empty")) == ["in"]
    fails("bad_request", link.call, "MOVE_PATH", path=guest.path("b"))
    fails("bad_request", link.call, "MOVE_PATH", path="/", target=guest.path("x"))
    shm = tempfile.mkdtemp(dir="/dev/shm")
    try:
        if os.stat(shm).st_dev != os.stat(guest.folder).st_dev:
            fails("path_crosses_mount", link.call, "MOVE_PATH", path=guest.path("empty"),
                  target=f"{shm}/x")
            assert os.listdir(guest.path("empty")) == ["in"]
    finally:
        shutil.rmtree(shm)


@test("REMOVE_PATH removes what it names and nothing that a link in it names")
def _(guest):
    link = guest.link

    def remove(name, status=None, **fields):
        call = (link.call,) if status is None else (fails, status, link.call)
        call[0](*call[1:], "REMOVE_PATH", path=guest.path(name), **fields)

    os.makedirs(guest.path("kept/in"))
    os.makedirs(guest.path("tree/a/b"))
    for name in ("kept/file", "tree/file", "tree/a/file", "tree/a/b/file"):
        with open(guest.path(name), "w"):
            pass
    os.symlink("../kept", guest.path("tree/link"))
    os.symlink(guest.path("kept"), guest.path("tree/a/link"))
    os.symlink("kept", guest.path("link"))
    remove("tree", "path_not_empty")
    remove("none", "path_not_found")
    remove("kept/file/x", "path_not_found")
    remove("link/in", "path_is_link", recursive=True)
    remove("link", recursive=True)
    remove("tree", recursive=True)
    assert guest.files() == ["kept"] and sorted(os.listdir(guest.path("kept"))) == ["file", "in"]
    remove("kept/in")
    remove("kept/file")
    remove("kept/", recursive=True)
    assert guest.files() == []
    os.makedirs(guest.path("/".join(["deep"] * 100)))
    remove("deep", recursive=True)
    folder = guest.path("too-deep")
    os.mkdir(folder)
    here = os.open(folder, os.O_RDONLY)
    for _ in range(3000):  # deeper than a path can say, and than descriptors reach
        os.mkdir("d" * 50, dir_fd=here)
        below = os.open("d" * 50, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    remove("too-deep", recursive=True)
    assert guest.files() == []
    fails("bad_request", link.call, "REMOVE_PATH", path="/.", recursive=True)
    if os.geteuid() == 0:
        os.makedirs(guest.path("theirs"))
        remove("theirs", "path_denied", user="daemon")


@test("a path through /proc is refused without one to use: that would be another for who asks next")
def _(guest):
    for path in ("/proc/self/mem", "/proc/self/exe", "/dev/fd/0"):
        assert "Use" not in fails("path_is_link", guest.link.call, "READ_FILE", path=path)
    os.symlink("/etc", guest.path("etc"))
    said = fails("path_is_link", guest.link.call, "READ_FILE", path=guest.path("etc/passwd"))
    assert said.endswith('Use "/etc/passwd"')


@test("REMOVE_PATH and MOVE_PATH stop at a mount")
def _(guest):
    link = guest.link
    os.makedirs(guest.path("tree/mount"))
    if os.geteuid() != 0 or subprocess.run(
            ["mount", "-t", "tmpfs", "none", guest.path("tree/mount")], capture_output=True).returncode:
        return
    try:
        with open(guest.path("tree/mount/kept"), "w"):
            pass
        for recursive in (0, 1):
            fails("path_crosses_mount", link.call, "REMOVE_PATH", path=guest.path("tree/mount"),
                  recursive=recursive)
        fails("path_crosses_mount", link.call, "REMOVE_PATH", path=guest.path("tree"), recursive=1)
        fails("path_crosses_mount", link.call, "MOVE_PATH", path=guest.path("tree/mount"),
              target=guest.path("x"))
        assert os.listdir(guest.path("tree/mount")) == ["kept"]
        # A folder mounted over another of the same file system is a mount as well.
        os.makedirs(guest.path("other/bound"))
        with open(guest.path("kept"), "w"):
            pass
        subprocess.run(["mount", "--bind", guest.folder, guest.path("other/bound")], check=True)
        try:
            fails("path_crosses_mount", link.call, "REMOVE_PATH", path=guest.path("other"), recursive=1)
            assert os.path.exists(guest.path("kept"))
        finally:
            subprocess.run(["umount", guest.path("other/bound")], check=True)
    finally:
        subprocess.run(["umount", guest.path("tree/mount")], check=True)


@test("a folder that becomes a link again and again leads no work out of it")
def _(guest):
    link = guest.link
    os.makedirs(guest.path("kept/in"))
    make_file(guest.path("kept/file"))
    # `tree/d` is a folder with something in it, or a link, by turns.
    script = """
import ctypes, os, sys
exchange = ctypes.CDLL(None).renameat2
os.chdir(sys.argv[1])
while os.path.exists("kept"):
    try:
        os.makedirs("tree", exist_ok=True)
        os.makedirs("other/in", exist_ok=True)
        open("other/file", "w").close()
        os.symlink("../kept", "tree/d")
    except OSError:
        pass
    for _ in range(50):
        exchange(-100, b"tree/d", -100, b"other", 2)
"""
    toggling = subprocess.Popen([sys.executable, "-c", script, guest.folder],
                                stderr=subprocess.DEVNULL)
    statuses = set()

    def attempt(op, name, **fields):
        try:
            link.call(op, path=guest.path(name), **fields)
            statuses.add("done")
        except Failed as failed:
            statuses.add(failed.status)

    try:
        until(lambda: os.path.lexists(guest.path("tree/d")))
        for i in range(100):
            attempt("REMOVE_PATH", "tree/d/in", recursive=True)
            attempt("MAKE_FOLDER", "tree/d/in/made", parents=True)
            attempt("MOVE_PATH", "tree/d/file", target=guest.path("moved"), replace=True)
            attempt("MOVE_PATH", "moved", target=guest.path("tree/d/moved"), replace=True)
            attempt("REMOVE_PATH", "tree", recursive=True)
            attempt("REMOVE_PATH", "other", recursive=True)
    finally:
        toggling.kill()
        toggling.wait()
    assert sorted(os.listdir(guest.path("kept"))) == ["file", "in"], os.listdir(guest.path("kept"))
    assert {"done", "path_is_link"} <= statuses, statuses
    assert statuses <= {"done", "path_is_link", "path_not_found", "path_not_empty"}, statuses
