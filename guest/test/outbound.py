"""The way out, end to end: connections of programs inside, in a network of the agent's own."""

import socket
import struct

from connect import Stream, OK
from harness import fails, test, until
from link import CANCEL, DATA, END, OPS, decode_fields

PYTHON = "/usr/bin/python3"
NAMES = """
import socket, struct, sys
resolver = ("127.198.18.53", 53)
def ask(name, kind=1):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(10)
    labels = b"".join(bytes([len(l)]) + l.encode() for l in name.split("."))
    s.sendto(struct.pack(">HHHHHH", 7, 0x100, 1, 0, 0, 0) + labels + b"\\0" + struct.pack(">HH", kind, 1), resolver)
    return s.recv(2000)
def address(name): return socket.inet_ntoa(ask(name)[-4:])
"""


class Outbound:
    """The host's end of OUTBOUND."""

    def __init__(self, link, window=1 << 16):
        self.link = link
        self.id = link.start("OUTBOUND")
        link.response(self.id)
        if window:
            link.window(self.id, window)

    def next(self):
        kind, payload = self.link.take(self.id, 20)
        assert kind == DATA, kind
        length = struct.unpack_from("<I", payload)[0]
        assert len(payload) == 4 + length
        return decode_fields(payload[4:])

    def carry(self, record):
        return Carried(self.link, record["connection"])


class Carried(Stream):
    def __init__(self, link, connection):
        self.link = link
        self.id = link.start("CARRY", connection=connection)
        link.response(self.id)
        self.credit = 0
        self.granted = 0
        self.bytes = b""
        self.ended = None
        self.grant(1 << 18)


def inside(link, script):
    return link.attach(link.spawn([PYTHON, "-c", NAMES + script]))


def said(reader):
    exit_of = reader.read_to_end()
    assert exit_of["exitCode"] == 0, reader.err.decode()
    return reader.out.decode().splitlines()


@test("nothing leaves while the host does not hold the way out open", needs_network=True)
def _(guest):
    script = """
for to in [("93.184.216.34", 80), (address("www.example.com"), 443)]:
    s = socket.socket(); s.settimeout(10)
    try: s.connect(to); print(s.recv(1))
    except ConnectionResetError: print("reset")
"""
    assert said(inside(guest.link, script)) == ["reset", "reset"]


@test("a connection is told by address, port and name, and carried both ways", needs_network=True)
def _(guest):
    link = guest.link
    outbound = Outbound(link)
    script = """
to = address("WWW.example.com")
for host in [to, "93.184.216.34"]:
    s = socket.create_connection((host, 8443), 20); s.settimeout(20)
    s.sendall(b"hello"); s.shutdown(socket.SHUT_WR)
    got = b""
    while chunk := s.recv(65536): got += chunk
    print(len(got), s.getsockname()[0])
print(address("www.example.com") == to, ask(".".join(reversed(to.split("."))) + ".in-addr.arpa", 12)[-17:])
"""
    reader = inside(link, script)
    for name in ["www.example.com", None]:
        record = outbound.next()
        address = socket.inet_ntoa(struct.pack(">I", record["address"]))
        assert record["port"] == 8443 and record.get("name") == name, record
        assert address.startswith("198.18.") if name else address == "93.184.216.34"
        stream = outbound.carry(record)
        while stream.ended is None:
            stream.step()
        assert stream.bytes == b"hello"
        fails("connection_reset", link.call, "CARRY", connection=record["connection"])
        stream.send(b"x" * 200000)
        link.send(END, stream.id, OK)
    lines = said(reader)
    assert lines[:2] == ["200000 198.18.0.1"] * 2
    assert lines[2] == "True " + repr(b"\3www\7example\3com\0"), lines


@test("what is not TCP over IPv4 is refused where it is sent; loopback is as ever", needs_network=True)
def _(guest):
    script = """
import errno
def attempt(what, work):
    try: work(); print(what, "ok")
    except OSError as error: print(what, errno.errorcode[error.errno])
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
attempt("udp", lambda: udp.sendto(b"x", ("8.8.8.8", 53)))
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
attempt("icmp", lambda: raw.sendto(b"\\x08\\0\\xf7\\xff\\0\\0\\0\\0", ("8.8.8.8", 0)))
attempt("v6", lambda: socket.create_connection(("2001:db8::1", 80), 10))
attempt("closed", lambda: socket.create_connection(("127.0.0.1", 9), 10))
server = socket.create_server(("0.0.0.0", 0))
for own in ["127.0.0.1", "127.0.1.1", "localhost"]:
    attempt(own, lambda: socket.create_connection((own, server.getsockname()[1]), 10))
"""
    expected = ["udp EACCES", "icmp EACCES", "v6 ENETUNREACH", "closed ECONNREFUSED"]
    expected += ["127.0.0.1 ok", "127.0.1.1 ok", "localhost ok"]
    assert said(inside(guest.link, script)) == expected


@test("connections that wait are reset when the way out closes, and when nobody wants them", needs_network=True)
def _(guest):
    link = guest.link
    outbound = Outbound(link)
    fails("bad_request", link.call, "OUTBOUND")
    fails("connection_reset", link.call, "CARRY", connection=77)
    script = """
try:
    s = socket.create_connection(("93.184.216.34", 80), 20); s.settimeout(20)
    print(s.recv(1))
except ConnectionResetError: print("reset")
"""
    first = inside(link, script)
    outbound.next()
    link.send(CANCEL, outbound.id)
    assert said(first) == ["reset"]
    outbound = Outbound(link)
    second = inside(link, script)
    link.send(CANCEL, outbound.carry(outbound.next()).id)
    assert said(second) == ["reset"]
    process = link.spawn([PYTHON, "-c", NAMES + script])
    outbound.next()
    link.resync()
    assert said(link.attach(process)) == ["reset"]


@test("more connections than may wait wait their turn", needs_network=True)
def _(guest):
    link = guest.link
    outbound = Outbound(link, window=0)
    script = """
sockets = [socket.create_connection(("10.0.0.1", 1000 + i), 20) for i in range(150)]
for s in sockets: s.settimeout(30)
print(sum(s.recv(9) == str(s.getpeername()[1]).encode() for s in sockets))
"""
    reader = inside(link, script)
    link.window(outbound.id, 1 << 20)
    ports = set()
    for _ in range(150):
        record = outbound.next()
        ports.add(record["port"])
        stream = outbound.carry(record)
        stream.send(str(record["port"]).encode())
        link.send(END, stream.id, OK)
    assert len(ports) == 150
    assert said(reader) == ["150"]
