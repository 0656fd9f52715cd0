"""The host end of the guest link, just enough to test the guest end. Stdlib only."""

import os
import select
import socket
import struct
import time

RESYNC = b"\x89PERDURE-RESYNC\n"
SYNCED = b"\x89PERDURE-SYNCED\n"

REQUEST, RESPONSE, DATA, END, WINDOW, CANCEL, EVENT = range(1, 8)

OPS = dict(
    INFO=1, PING=2, CLOCK_ADJUST=3, ENTROPY=4, FLUSH=5, FREEZE=6, THAW=7, GENERATION=8, IDENTITY=9,
    HOOKS=10, EXEC=11, ATTACH=12, STDIN=13, SIGNAL=14, PROCESSES=15, FORGET=16, READ_FILE=17,
    WRITE_FILE=18, STAT=19, STATS=20, TIMERS=21, DROP_CACHES=22, SHUTDOWN=23, RESIZE=24,
    LIST_FOLDER=25, MAKE_FOLDER=26, MOVE_PATH=27, REMOVE_PATH=28, WATCH=29, ACTIVITY=30,
    CLOCK_SOURCE=31, FROZEN_WAITS=32, CONNECT=33, OUTBOUND=34, CARRY=35,
)

TAGS = dict(
    message=1, deadlineMs=2, version=3, realtimeNs=4, monotonicNs=5, deltaNs=6, bytes=7,
    generation=8, json=9, argv=10, env=11, cwd=12, user=13, timeoutMs=14, stdin=15, logBytes=16,
    process=17, pid=18, exitCode=19, signal=20, running=21, timedOut=22, logStart=23, logEnd=24,
    channel=25, path=30, mode=31, size=32, kind=33, uid=34, gid=35, mtimeNs=36, offset=37,
    length=38, frozen=40, bootId=41, hostname=42, machineId=43, file=44, hook=45, timer=46, stat=47,
    entry=48, name=49, value=50, startedNs=51, dueInMs=52, tree=53, rows=56,
    columns=57, target=58, parents=59, replace=60, recursive=61,
    port=63, connection=27, address=28,
)
TAGS["from"] = 62
NAMES = {number: name for name, number in TAGS.items()}
STRINGS = {"message", "version", "json", "cwd", "user", "path", "kind", "bootId", "hostname",
           "machineId", "name", "target", "from"}
LISTS = {"argv", "env", "file", "hook", "timer", "stat", "entry"}
NESTED = {"file", "hook", "timer", "stat", "entry"}

STATUS = [
    "ok", "bad_request", "unknown_operation", "deadline_exceeded", "too_many", "process_not_found",
    "user_not_found", "path_not_found", "path_exists", "path_denied", "path_is_link",
    "path_is_directory", "path_not_file", "disk_full", "size_mismatch", "stdin_closed",
    "process_ended", "exec_failed", "process_running", "internal", "not_supported", "cancelled",
    "path_not_folder", "path_not_empty", "path_crosses_mount",
    "port_refused", "connection_reset",
]


def encode_fields(fields):
    out = b""
    for name, value in fields.items():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(one, dict):
                one = encode_fields(one)
            elif isinstance(one, str):
                one = one.encode("utf-8", "surrogateescape")
            elif isinstance(one, bool):
                one = struct.pack("<Q", int(one))
            elif isinstance(one, int):
                one = struct.pack("<q" if one < 0 else "<Q", one)
            out += struct.pack("<HI", TAGS[name], len(one)) + one
    return out


def decode_fields(payload):
    fields = {}
    at = 0
    while at < len(payload):
        tag, length = struct.unpack_from("<HI", payload, at)
        value = payload[at + 6 : at + 6 + length]
        assert len(value) == length, "a field is longer than its frame"
        at += 6 + length
        name = NAMES[tag]
        if name in NESTED:
            value = decode_fields(value)
        elif name in STRINGS or name in {"argv", "env"}:
            value = value.decode("utf-8", "replace")
        elif name != "bytes":
            (value,) = struct.unpack("<Q", value)
        if name in LISTS:
            fields.setdefault(name, []).append(value)
        else:
            fields[name] = value
    return fields


def frame(kind, stream, payload=b""):
    return struct.pack("<IBBHI", 8 + len(payload), kind, 0, 0, stream) + payload


class Failed(Exception):
    def __init__(self, status, fields):
        super().__init__(f"{STATUS[status]}: {fields.get('message', '')}")
        self.status = STATUS[status]
        self.fields = fields


class Link:
    """Speaks over a connected stream socket. Everything is synchronous, with deadlines."""

    def __init__(self, sock):
        self.sock = sock
        sock.setblocking(False)
        self.buffer = b""
        self.next_stream = 1
        self.frames = {}  # stream -> [(kind, payload)]
        self.events = []
        self.epoch = 0
        self.log = []  # (kind, stream) in order of arrival

    # bytes

    def send_raw(self, data, timeout=60):
        deadline = time.monotonic() + timeout
        view = memoryview(data)
        while view:
            readable, writable, _ = select.select([self.sock], [self.sock], [],
                                                  max(0, deadline - time.monotonic()))
            if readable:
                self._read()
            if writable:
                view = view[self.sock.send(view[: 256 * 1024]) :]
            assert time.monotonic() < deadline, "the guest does not take bytes"

    def _read(self):
        data = self.sock.recv(1 << 20)
        if not data:
            raise EOFError("the guest closed the link")
        self.buffer += data
        return data

    def resync(self, timeout=60, version=3):
        self.epoch += 1
        nonce = os.urandom(16)
        self.send_raw(RESYNC + nonce + struct.pack("<IIQ", version, self.epoch, 7))
        deadline = time.monotonic() + timeout
        want = SYNCED + nonce
        while True:
            at = self.buffer.find(want)
            if at >= 0 and len(self.buffer) >= at + 48:
                break
            assert time.monotonic() < deadline, "no SYNCED"
            if select.select([self.sock], [], [], 0.1)[0]:
                self._read()
        chosen, epoch, reserved = struct.unpack_from("<IIQ", self.buffer, at + 32)
        assert epoch == self.epoch and reserved == 0, (epoch, self.epoch)
        self.discarded = at
        self.buffer = self.buffer[at + 48 :]
        self.frames = {}
        self.events = []
        self.log = []
        return chosen

    def pump(self, timeout):
        """Takes what is there; where that is no frame, waits up to `timeout` for bytes."""
        if self._parse():
            return
        if select.select([self.sock], [], [], timeout)[0]:
            self._read()
        self._parse()

    def _parse(self):
        at = 0
        while len(self.buffer) - at >= 12:
            length, kind, flags, reserved, stream = struct.unpack_from("<IBBHI", self.buffer, at)
            assert flags == 0 and reserved == 0 and 8 <= length <= 8 + 65536, "a broken frame"
            if len(self.buffer) - at < 4 + length:
                break
            payload = self.buffer[at + 12 : at + 4 + length]
            at += 4 + length
            self.log.append((kind, stream))
            if kind == EVENT:
                self.events.append(decode_fields(payload[2:]))
            else:
                self.frames.setdefault(stream, []).append((kind, payload))
        self.buffer = self.buffer[at:]
        return at > 0

    # frames

    def send(self, kind, stream, payload=b""):
        self.send_raw(frame(kind, stream, payload))

    def window(self, stream, count):
        self.send(WINDOW, stream, struct.pack("<I", count))

    def start(self, op, **fields):
        stream = self.next_stream
        self.next_stream += 1
        number = OPS[op] if isinstance(op, str) else op
        self.send(REQUEST, stream, struct.pack("<H", number) + encode_fields(fields))
        return stream

    def take(self, stream, timeout=60):
        """The next frame of a stream."""
        deadline = time.monotonic() + timeout
        while not self.frames.get(stream):
            left = deadline - time.monotonic()
            assert left > 0, f"nothing came on stream {stream}"
            self.pump(left)
        return self.frames[stream].pop(0)

    def quiet(self, stream, seconds=0.3):
        """True where nothing comes on a stream."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.pump(max(0, deadline - time.monotonic()))
        return not self.frames.get(stream)

    def response(self, stream, timeout=60):
        kind, payload = self.take(stream, timeout)
        assert kind == RESPONSE, f"frame {kind} instead of a RESPONSE"
        (status,) = struct.unpack_from("<H", payload)
        fields = decode_fields(payload[2:])
        if status != 0:
            raise Failed(status, fields)
        return fields

    def call(self, op, timeout=60, **fields):
        return self.response(self.start(op, **fields), timeout)

    # operations

    def spawn(self, argv, **fields):
        return self.call("EXEC", argv=argv, **fields)["process"]

    def attach(self, process, offset=0, window=1 << 20):
        stream = self.start("ATTACH", process=process, offset=offset)
        reader = Reader(self, stream, self.response(stream), offset)
        if window:
            reader.grant(window)
        return reader

    def run(self, argv, timeout=30, **fields):
        reader = self.attach(self.spawn(argv, **fields))
        exit_fields = reader.read_to_end(timeout)
        return reader.out, reader.err, exit_fields

    def write_file(self, path, data, size=None, end=True, **fields):
        size = len(data) if size is None else size
        stream = self.start("WRITE_FILE", path=path, size=size, **fields)
        credit = 0
        view = memoryview(data)
        while view:
            while credit == 0:
                kind, payload = self.take(stream)
                if kind == RESPONSE:
                    self.frames.setdefault(stream, []).insert(0, (kind, payload))
                    return self.response(stream)
                assert kind == WINDOW
                credit += struct.unpack("<I", payload)[0]
            part = view[: min(credit, 65536)]
            self.send(DATA, stream, bytes(part))
            credit -= len(part)
            view = view[len(part) :]
        if not end:
            return stream
        self.send(END, stream, struct.pack("<H", 0))
        return self.written(stream)

    def written(self, stream, timeout=20):
        while True:
            kind, payload = self.take(stream, timeout)
            if kind == RESPONSE:
                self.frames.setdefault(stream, []).insert(0, (kind, payload))
                return self.response(stream)
            assert kind == WINDOW, kind

    def read_file(self, path, window=1 << 20, **fields):
        stream = self.start("READ_FILE", path=path, **fields)
        facts = self.response(stream)
        parts = []
        self.window(stream, window)
        owed = 0
        while True:
            kind, payload = self.take(stream)
            if kind == END:
                (status,) = struct.unpack_from("<H", payload)
                if status != 0:
                    raise Failed(status, decode_fields(payload[2:]))
                return facts, b"".join(parts)
            assert kind == DATA
            parts.append(payload)
            owed += len(payload)
            if owed >= window // 2:
                self.window(stream, owed)
                owed = 0


class Records:
    """The records of a LIST_FOLDER or WATCH, taken one by one."""

    def __init__(self, link, op, window=1 << 18, **fields):
        self.link = link
        self.stream = link.start(op, **fields)
        link.response(self.stream)
        self.bytes = b""
        self.found = []
        self.is_over = False
        if window:
            link.window(self.stream, window)

    def take(self, timeout=60, regrant=True):
        """The next record; None at the end."""
        while not self.found:
            if self.is_over:
                return None
            kind, payload = self.link.take(self.stream, timeout)
            if kind == END:
                assert self.bytes == b"", "a record that is cut short"
                self.is_over = True
                (status,) = struct.unpack_from("<H", payload)
                if status != 0:
                    raise Failed(status, decode_fields(payload[2:]))
                continue
            assert kind == DATA, kind
            if regrant:
                self.link.window(self.stream, len(payload))
            self.bytes += payload
            while len(self.bytes) >= 4:
                (length,) = struct.unpack_from("<I", self.bytes)
                assert length <= 16384, length
                if len(self.bytes) < 4 + length:
                    break
                self.found.append(decode_fields(self.bytes[4 : 4 + length]))
                self.bytes = self.bytes[4 + length :]
        return self.found.pop(0)

    def rest(self):
        return list(iter(self.take, None))

    def leave(self):
        self.link.send(CANCEL, self.stream)


class Reader:
    """One attached reader. Checks that offsets have no gap and no repeat."""

    def __init__(self, link, stream, facts, offset):
        self.link = link
        self.stream = stream
        self.facts = facts
        self.offset = offset
        self.out = b""
        self.err = b""
        self.pieces = []  # (channel, bytes)
        self.cuts = []
        self.credit = 0
        self.exit = None

    def grant(self, count):
        self.credit += count
        self.link.window(self.stream, count)

    def step(self, timeout=20, regrant=True):
        kind, payload = self.link.take(self.stream, timeout)
        if kind == END:
            (status,) = struct.unpack_from("<H", payload)
            self.exit = decode_fields(payload[2:])
            if status != 0:
                raise Failed(status, self.exit)
            return False
        assert kind == DATA, kind
        self.credit -= len(payload)
        assert self.credit >= 0, "more DATA than granted"
        channel, offset = payload[0], struct.unpack_from("<Q", payload, 8)[0]
        assert payload[1:8] == bytes(7)
        assert offset == self.offset, f"offset {offset}, expected {self.offset}"
        data = payload[16:]
        if channel == 0:
            start, end = struct.unpack("<QQ", data)
            assert start == offset and end > start
            self.cuts.append((start, end))
            self.offset = end
        else:
            assert data, "an empty DATA"
            self.offset += len(data)
            if channel == 1:
                self.out += data
            else:
                assert channel == 2
                self.err += data
            self.pieces.append((channel, data))
        if regrant:
            self.grant(len(payload))
        return True

    def read_to_end(self, timeout=60):
        deadline = time.monotonic() + timeout
        while self.step(max(0.01, deadline - time.monotonic())):
            pass
        return self.exit


def connect_unix(path, timeout=60):
    deadline = time.monotonic() + timeout
    while True:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(path)
            return sock
        except OSError:
            sock.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
