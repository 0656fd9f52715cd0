"""Streams to TCP ports inside, end to end. What listens is this process."""

import contextlib
import hashlib
import os
import random
import select
import socket
import struct
import threading
import time

from harness import fails, test, until
from link import CANCEL, DATA, END, RESPONSE, WINDOW, OPS, Failed, decode_fields

OK = struct.pack("<H", 0)


@contextlib.contextmanager
def listening(family=socket.AF_INET, backlog=64):
    with socket.socket(family) as server:
        server.settimeout(60)
        server.bind(("::1" if family == socket.AF_INET6 else "127.0.0.1", 0))
        server.listen(backlog)
        yield server, server.getsockname()[1]


def accepted(server):
    peer, _ = server.accept()
    peer.settimeout(60)
    return peer


class Stream:
    """The host's end of one connection. Keeps the credit both ways."""

    def __init__(self, link, port, window=1 << 18, **fields):
        self.link = link
        self.id = link.start("CONNECT", port=port, **fields)
        link.response(self.id)
        self.credit = 0
        self.granted = 0
        self.bytes = b""
        self.ended = None
        if window:
            self.grant(window)

    def grant(self, count):
        self.granted += count
        self.link.window(self.id, count)

    def step(self, timeout=60, regrant=True):
        kind, payload = self.link.take(self.id, timeout)
        if kind == WINDOW:
            self.credit += struct.unpack("<I", payload)[0]
            assert self.credit <= 65536, self.credit
        elif kind == DATA:
            assert self.ended is None and payload
            self.granted -= len(payload)
            assert self.granted >= 0, "more DATA than granted"
            self.bytes += payload
            if regrant:
                self.grant(len(payload))
        else:
            assert kind == END, kind
            status, = struct.unpack_from("<H", payload)
            assert self.ended is None or (self.ended == 0 and status != 0), "a second END"
            self.ended = status

    def send(self, data, regrant=True):
        view = memoryview(data)
        while view:
            while self.credit == 0:
                self.step(regrant=regrant)
            part = bytes(view[: min(self.credit, 65536)])
            self.link.send(DATA, self.id, part)
            self.credit -= len(part)
            view = view[len(part) :]

    def fill(self):
        """Sends until no more is taken; how much it was."""
        given = 0
        while True:
            while self.credit:
                count = min(self.credit, 65536)
                self.link.send(DATA, self.id, bytes(count))
                self.credit -= count
                given += count
            deadline = time.monotonic() + 0.5
            while not self.link.frames.get(self.id) and time.monotonic() < deadline:
                self.link.pump(0.1)
            if not self.link.frames.get(self.id):
                return given
            self.step()

    def end(self):
        self.link.send(END, self.id, OK)

    def leave(self):
        self.link.send(CANCEL, self.id)

    def read(self, length):
        while len(self.bytes) < length:
            assert self.ended is None, self.ended
            self.step()
        got, self.bytes = self.bytes[:length], self.bytes[length:]
        return got

    def read_to_end(self):
        while self.ended is None:
            self.step()
        return self.bytes


def descriptors(guest):
    return len(os.listdir(f"/proc/{guest.process.pid}/fd"))


def is_reset_at_end(peer):
    try:
        while peer.recv(1 << 20):
            pass
        return False
    except ConnectionResetError:
        return True


def is_reset(peer):
    try:
        return peer.recv(1) != b"" and False
    except ConnectionResetError:
        return True


@test("bytes go both ways, and each side ends by itself")
def _(guest):
    for family in [socket.AF_INET, socket.AF_INET6]:
        with listening(family) as (server, port):
            stream = Stream(guest.link, port)
            peer = accepted(server)
            stream.send(b"question")
            assert peer.recv(100) == b"question"
            stream.end()
            assert peer.recv(100) == b"", "the host's end is an end"
            peer.sendall(b"answer")
            assert stream.read(6) == b"answer"
            peer.close()
            assert stream.read_to_end() == b"" and stream.ended == 0
            # The other side first.
            stream = Stream(guest.link, port)
            peer = accepted(server)
            peer.sendall(b"hello")
            peer.shutdown(socket.SHUT_WR)
            assert stream.read_to_end() == b"hello" and stream.ended == 0
            stream.send(b"late")
            assert peer.recv(100) == b"late"
            stream.end()
            assert peer.recv(100) == b""
            peer.close()
    assert guest.link.quiet(stream.id)


@test("a port that nobody listens on is refused, and so is what is no port")
def _(guest):
    with listening() as (_, port):
        pass
    began = time.monotonic()
    for _ in range(300):  # more than there may be at once: none is left over
        fails("port_refused", guest.link.call, "CONNECT", port=port)
    assert time.monotonic() - began < 50
    for wrong in [0, 65536, 1 << 40, (1 << 64) - 1]:
        fails("bad_request", guest.link.call, "CONNECT", port=wrong)
    fails("bad_request", guest.link.call, "CONNECT")


@test("megabytes go through both ways at once, whole")
def _(guest):
    total = 8 << 20
    chance = random.Random(5)
    data = chance.randbytes(total)
    with listening() as (server, port):
        def echo():
            peer = accepted(server)
            while True:
                got = peer.recv(1 << 16)
                if not got:
                    break
                peer.sendall(got)
            peer.close()

        thread = threading.Thread(target=echo)
        thread.start()
        stream = Stream(guest.link, port)
        back = hashlib.sha256()
        came = 0
        for at in range(0, total, 50000):
            stream.send(data[at : at + 50000])
            came += len(stream.bytes)
            back.update(stream.bytes)
            stream.bytes = b""
        stream.end()
        back.update(stream.read_to_end())
        thread.join(20)
        assert stream.ended == 0 and back.digest() == hashlib.sha256(data).digest()


@test("who does not read holds up the other side, and nothing else")
def _(guest):
    link = guest.link
    with listening() as (server, port):
        # A host that grants little.
        slow = Stream(link, port, window=1000)
        peer = accepted(server)
        peer.setblocking(False)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            for _ in range(10000):
                sent += peer.send(bytes(1 << 16))
        while slow.granted > 0:
            slow.step(regrant=False)
        assert link.quiet(slow.id), "more than was granted"
        # A program that reads nothing.
        other = Stream(link, port)
        silent = accepted(server)
        given = other.fill()
        assert given < 64 << 20, given
        link.call("PING")
        # Both go on where they were.
        while given:
            given -= len(silent.recv(min(given, 1 << 20)))
        other.send(b"x")
        assert silent.recv(10) == b"x"
        sent -= len(slow.bytes)
        slow.grant(1 << 18)
        while sent:
            slow.bytes = b""
            slow.step()
            sent -= len(slow.bytes)
        for each in (slow, other):
            each.leave()
        peer.close()
        silent.close()


@test("a host that leaves resets the program's connection, and so does the end of the epoch")
def _(guest):
    link = guest.link
    with listening() as (server, port):
        stream = Stream(link, port)
        peer = accepted(server)
        stream.send(b"half of")
        stream.leave()
        assert peer.recv(7) == b"half of"
        assert is_reset(peer), "half of something is not the whole"
        streams = [Stream(link, port) for _ in range(3)]
        peers = [accepted(server) for _ in streams]
        streams[1].end()
        assert peers[1].recv(1) == b""
        link.resync()
        assert is_reset(peers[0]) and is_reset(peers[2])
        until(lambda: _gone(peers[1]))
        Stream(link, port)
        accepted(server).close()


def _gone(peer):
    try:
        peer.send(b"x")
        return False
    except (BrokenPipeError, ConnectionResetError):
        return True


@test("a program that breaks off is told as a reset, after what it said")
def _(guest):
    link = guest.link
    at_once = struct.pack("ii", 1, 0)
    with listening() as (server, port):
        stream = Stream(link, port)
        peer = accepted(server)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        peer.close()
        stream.read_to_end()
        assert stream.ended == 26, stream.ended
        # Closed with something unread: what it said before is not lost.
        stream = Stream(link, port, window=0)
        peer = accepted(server)
        stream.send(b"never read")
        select.select([peer], [], [], 10)
        peer.sendall(b"last words")
        peer.close()
        stream.grant(1000)
        assert stream.read_to_end() == b"last words" and stream.ended == 26
        # An end in order, and then it takes no more.
        stream = Stream(link, port)
        peer = accepted(server)
        peer.close()
        stream.read_to_end()
        assert stream.ended == 0
        deadline = time.monotonic() + 60
        while stream.ended == 0 and time.monotonic() < deadline:
            if stream.credit:
                stream.send(b"x")
            if not link.quiet(stream.id, 0.05):
                stream.step()
        assert stream.ended == 26, "what it does not take is told"
        assert link.quiet(stream.id)


@test("a program that breaks off at once is never one that does not listen")
def _(guest):
    at_once = struct.pack("ii", 1, 0)
    stop = threading.Event()
    with listening() as (server, port):
        def serve():
            server.settimeout(0.2)
            while not stop.is_set():
                with contextlib.suppress(socket.timeout):
                    peer, _ = server.accept()
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
                    peer.close()

        threads = [threading.Thread(target=serve) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(500):
                try:
                    stream = Stream(guest.link, port)
                    stream.read_to_end()
                    assert stream.ended == 26, stream.ended
                except Failed as failed:
                    assert failed.status == "connection_reset", failed
        finally:
            stop.set()
            for thread in threads:
                thread.join(20)


@test("192 connections at once, and one more when one has gone")
def _(guest):
    link = guest.link
    with listening(backlog=256) as (server, port):
        streams = [Stream(link, port, window=0) for _ in range(192)]
        peers = [accepted(server) for _ in streams]
        fails("too_many", link.call, "CONNECT", port=port)
        assert link.run(["echo", "fine"])[0] == b"fine\n", "there is room for everything else"
        for number, (stream, peer) in enumerate(zip(streams, peers)):
            peer.sendall(b"%d" % number)
            stream.grant(100)
        for number, stream in enumerate(streams):
            assert stream.read(len(str(number))) == b"%d" % number
        streams[7].leave()
        assert is_reset(peers[7])
        Stream(link, port)
        peers[8].close()  # and one that ends in order
        streams[8].end()
        streams[8].read_to_end()
        until(lambda: _connects(link, port))
        for peer in peers:
            peer.close()


def _connects(link, port):
    try:
        Stream(link, port)
        return True
    except Failed as failed:
        assert failed.status == "too_many"
        return False


@test("who does not take a connection is given up at the deadline, or by the host")
def _(guest):
    link = guest.link
    with listening(backlog=0) as (server, port):
        held = []
        waiting = None
        for _ in range(8):  # until the queue of the listener is full
            stream = link.start("CONNECT", port=port, deadlineMs=300)
            kind, payload = link.take(stream)
            assert kind == RESPONSE
            status, = struct.unpack_from("<H", payload)
            if status == 3:
                waiting = stream
                break
            assert status == 0, decode_fields(payload[2:])
            held.append(stream)
        assert waiting is not None, "it always connects"
        stream = link.start("CONNECT", port=port, deadlineMs=60000)
        assert link.quiet(stream)
        link.send(CANCEL, stream)
        stream = link.start("CONNECT", port=port, deadlineMs=60000)
        link.send(END, stream, OK)
        link.call("PING")
        for _ in range(len(held) + 1):
            peer = accepted(server)
        link.response(stream)
        assert peer.recv(1) == b"", "an end from before it was connected"


@test("what was taken is delivered after both sides ended, unless nobody reads it")
def _(guest):
    link = guest.link
    before = descriptors(guest)
    with listening() as (server, port):
        # More than sockets hold: a part is left with the agent when both have ended.
        stuck = Stream(link, port)
        silent = accepted(server)
        while stuck.fill():
            silent.sendall(b"x")  # has the agent try again
        silent.shutdown(socket.SHUT_WR)
        stuck.read_to_end()
        stuck.end()
        assert stuck.ended == 0
        stream = Stream(link, port)
        peer = accepted(server)
        stream.send(bytes(60000))
        peer.shutdown(socket.SHUT_WR)
        stream.read_to_end()
        stream.end()
        left = 60000
        while left:
            left -= len(peer.recv(left))
        assert peer.recv(1) == b"", "it reads it all, and the end"
        # Its socket is given up; a program that reads on is told then.
        until(lambda: descriptors(guest) == before)
        assert is_reset_at_end(silent)


@test("DATA beyond the credit ends the epoch and its connections")
def _(guest):
    link = guest.link
    with listening() as (server, port):
        stream = Stream(link, port)
        peer = accepted(server)
        for _ in range(400):
            link.send(DATA, stream.id, bytes(65536))
        while True:
            try:
                if peer.recv(1 << 16) == b"":
                    raise AssertionError("an end in order")
            except ConnectionResetError:
                break
        link.resync()


@test("random frames to connections do not stop the agent")
def _(guest):
    link = guest.link
    chance = random.Random(int(os.environ.get("SEED", "23")))
    stop = threading.Event()
    with listening(backlog=200) as (server, port):
        def serve():
            peers = []
            own = random.Random(chance.random())
            server.settimeout(0.05)
            while not stop.is_set():
                with contextlib.suppress(socket.timeout):
                    peers.append(server.accept()[0])
                    peers[-1].setblocking(False)
                for peer in list(peers):
                    with contextlib.suppress(OSError):
                        deed = own.randrange(6)
                        if deed == 0:
                            peer.recv(own.randrange(1, 100000))
                        elif deed == 1:
                            peer.send(bytes(own.randrange(100000)))
                        elif deed == 2 and own.randrange(4) == 0:
                            peer.shutdown(socket.SHUT_WR)
                        elif deed == 3 and own.randrange(4) == 0:
                            peer.close()
                            peers.remove(peer)
            for peer in peers:
                peer.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            for _ in range(40):
                for _ in range(60):
                    stream = chance.randrange(1, 12)
                    deed = chance.randrange(8)
                    if deed < 2:
                        with contextlib.suppress(AssertionError):
                            link.send(1, 1000 + chance.randrange(1 << 20),
                                      struct.pack("<HHIQ", OPS["CONNECT"], 63, 8, port))
                        streams = [each for each, frames in link.frames.items() if frames]
                        stream = chance.choice(streams) if streams else stream
                    known = list(link.frames) or [stream]
                    stream = chance.choice(known)
                    if deed == 2:
                        link.send(WINDOW, stream, struct.pack("<I", chance.randrange(1 << 16)))
                    elif deed == 3:
                        link.send(DATA, stream, bytes(chance.randrange(2000)))
                    elif deed == 4:
                        link.send(END, stream, OK)
                    elif deed == 5:
                        link.send(CANCEL, stream)
                    link.pump(0)
                link.resync(20)
        finally:
            stop.set()
            thread.join(20)
    assert link.call("PING")["realtimeNs"]
