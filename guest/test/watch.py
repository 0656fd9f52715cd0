"""Watches, end to end."""

import os
import shutil

from harness import SH, children_of, fails, make_file, test, until
from link import CANCEL, Records


class Watch(Records):
    def __init__(self, guest, name, **fields):
        super().__init__(guest.link, "WATCH", path=guest.path(name), **fields)
        self.guest = guest

    def short(self, record):
        if record is None:
            return None
        prefix = self.guest.folder + "/"
        paths = [record[key].removeprefix(prefix) for key in ("from", "path") if key in record]
        return " ".join([record["kind"], *paths])

    def next(self):
        return self.short(self.take())

    def until(self, wanted):
        seen = []
        while not seen or seen[-1] != wanted:
            assert None not in seen, seen
            seen.append(self.next())
        return seen


@test("WATCH tells what happens in a folder, in order")
def _(guest):
    os.mkdir(guest.path("w"))
    os.mkdir(guest.path("w/sub"))
    watch = Watch(guest, "w/")
    make_file(guest.path("w/a"))
    assert watch.next() == "created w/a"
    assert watch.next() == "changed w/a"
    make_file(guest.path("w/a"), "text")
    assert watch.next() == "changed w/a"
    os.chmod(guest.path("w/a"), 0o600)
    watch.until("attributes w/a")
    os.rename(guest.path("w/a"), guest.path("w/b"))
    assert watch.next() == "moved w/a w/b"
    os.rename(guest.path("w/b"), guest.path("out"))
    assert watch.next() == "removed w/b"
    os.rename(guest.path("out"), guest.path("w/in"))
    assert watch.next() == "created w/in"
    make_file(guest.path("w/sub/low"))
    os.unlink(guest.path("w/in"))
    assert watch.next() == "removed w/in", "what is below was not asked for"
    os.rmdir(guest.path("w/sub")) if os.unlink(guest.path("w/sub/low")) is None else None
    watch.until("removed w/sub")
    os.rmdir(guest.path("w"))
    watch.until("removed w")
    assert watch.next() is None


@test("WATCH follows folders that come, move and go, at any depth")
def _(guest):
    os.makedirs(guest.path("w/a/b"))
    watch = Watch(guest, "w", recursive=True)
    make_file(guest.path("w/a/b/deep"))
    watch.until("created w/a/b/deep")
    os.makedirs(guest.path("w/new/x/y"))
    watch.until("created w/new/x/y")
    make_file(guest.path("w/new/x/y/f"))
    watch.until("created w/new/x/y/f")
    os.rename(guest.path("w/a"), guest.path("w/new/a"))
    watch.until("moved w/a w/new/a")
    make_file(guest.path("w/new/a/b/deep"), "more")
    watch.until("changed w/new/a/b/deep")
    # Out of sight it is not told of, and back in sight it is, with what is in it.
    os.rename(guest.path("w/new/a"), guest.path("away"))
    watch.until("removed w/new/a")
    make_file(guest.path("away/b/unseen"))
    os.rename(guest.path("away"), guest.path("w/back"))
    seen = watch.until("created w/back/b/unseen")
    assert not [each for each in seen[:-1] if "unseen" in each], seen
    make_file(guest.path("w/back/b/seen"))
    watch.until("created w/back/b/seen")
    shutil.rmtree(guest.path("w/new"))
    watch.until("removed w/new")
    # A folder of the same name is another one.
    os.makedirs(guest.path("w/new"))
    watch.until("created w/new")
    make_file(guest.path("w/new/again"))
    watch.until("created w/new/again")
    os.symlink(guest.folder, guest.path("w/link"))
    watch.until("created w/link")
    make_file(guest.path("beside"))
    os.unlink(guest.path("w/link"))
    seen = watch.until("removed w/link")
    assert not [each for each in seen if "beside" in each], "a link was followed"


@test("WATCH tells of a file written over the link once, when it is whole")
def _(guest):
    os.mkdir(guest.path("w"))
    watch = Watch(guest, "w", recursive=True)
    for text in (b"first", b"second"):
        guest.link.write_file(guest.path("w/f"), text)
        assert watch.next() == "created w/f"
    stream = guest.link.write_file(guest.path("w/half"), b"xx", size=5, end=False)
    guest.link.send(CANCEL, stream)
    until(lambda: os.listdir(guest.path("w")) == ["f"])
    os.unlink(guest.path("w/f"))
    assert watch.next() == "removed w/f", "a draft is nobody's business"


@test("WATCH of a file tells of that file, and of what takes its place")
def _(guest):
    make_file(guest.path("f"))
    make_file(guest.path("other"))
    watch = Watch(guest, "f", recursive=True)
    make_file(guest.path("other"), "x")
    make_file(guest.path("f"), "x")
    assert watch.next() == "changed f"
    os.chmod(guest.path("f"), 0o600)
    watch.until("attributes f")
    os.rename(guest.path("other"), guest.path("f"))
    assert watch.next() == "created f"
    os.unlink(guest.path("f"))
    assert watch.next() == "removed f"
    make_file(guest.path("f"))
    assert watch.next() == "created f"
    os.rename(guest.path("f"), guest.path("away"))
    watch.until("removed f")


@test("WATCH says why it cannot, and there are so many and no more")
def _(guest):
    link = guest.link
    os.mkdir(guest.path("w"))
    os.symlink("w", guest.path("link"))
    fails("path_is_link", Watch, guest, "link")
    fails("path_not_found", Watch, guest, "none")
    fails("bad_request", link.call, "WATCH", path="w")
    fails("user_not_found", Watch, guest, "w", user="nobody-here")
    if os.geteuid() == 0:
        os.chmod(guest.path("w"), 0o700)
        fails("path_denied", Watch, guest, "w", user="daemon")
    watches = [Watch(guest, "w") for _ in range(16)]
    fails("too_many", Watch, guest, "w")
    watches[3].leave()
    until(lambda: len(children_of(guest.process.pid)) == 15)
    last = Watch(guest, "w")
    make_file(guest.path("w/f"))
    for watch in watches[:3] + watches[4:] + [last]:
        assert watch.next() == "created w/f"
    # They die with the epoch.
    link.resync()
    until(lambda: not children_of(guest.process.pid))


@test("WATCH that nobody reads keeps a bounded part, and says that it missed the rest")
def _(guest):
    link = guest.link
    with open("/proc/sys/fs/inotify/max_queued_events") as file:
        queued = int(file.read())
    if queued > 20000:
        return
    os.makedirs(guest.path("w/sub"))
    watch = Watch(guest, "w", recursive=True, window=0)
    for i in range((queued + 3000) // 2):
        name = guest.path(f"w/sub/{'n' * 100}{i}")
        make_file(name)
        os.unlink(name)
    os.rename(guest.path("w/sub"), guest.path("w/late"))
    child = children_of(guest.process.pid)[0]
    with open(f"/proc/{child}/statm") as file:
        pages = int(file.read().split()[1])
    link.window(watch.stream, 1 << 18)
    watch.until("missed")
    # From then on everything is told again, under the names of now.
    make_file(guest.path("w/late/f"))
    watch.until("created w/late/f")
    with open(f"/proc/{child}/statm") as file:
        assert int(file.read().split()[1]) < pages + 1024, "the child grows with what it tells"


@test("WATCH of more folders than it keeps says that it missed some")
def _(guest):
    for i in range(4200):
        os.makedirs(guest.path(f"w/{i // 100}/{i}"))
    watch = Watch(guest, "w", recursive=True)
    assert watch.next() == "missed"
    make_file(guest.path("w/top"))
    watch.until("created w/top")


@test("WATCH goes on through FREEZE and THAW", needs_cgroup=True)
def _(guest):
    link = guest.link
    os.mkdir(guest.path("w"))
    watch = Watch(guest, "w")
    script = f"i=0; while :; do i=$((i+1)); : > {guest.path('w')}/$i; sleep 0.02; done"
    link.spawn(SH + [script])
    watch.until("created w/3")
    link.call("FREEZE", deadlineMs=20000)
    while not link.quiet(watch.stream, 0.5):
        watch.take()
    last = max(int(name) for name in os.listdir(guest.path("w")))
    link.call("THAW")
    seen = watch.until(f"created w/{last + 3}")
    assert f"created w/{last + 2}" in seen
