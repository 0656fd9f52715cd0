"""For tests: runs a program on a terminal of its own. usage: terminal.py ROWS COLUMNS PROGRAM [ARGUMENT...]

Standard input is typed, and all output comes to standard output. A line "ROWS COLUMNS" on descriptor 3 resizes.
The end of input types ^D. Ends as the program ends.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios

rows, columns, *argv = sys.argv[1:]


def resize(terminal, rows, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


read, write = os.pipe()
child, terminal = pty.fork()
if child == 0:
    os.close(write)
    os.read(read, 1)  # until the size is set
    os.close(3)
    try:
        os.execvp(argv[0], argv)
    finally:
        os._exit(127)
resize(terminal, int(rows), int(columns))
os.close(write)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, lambda number, _: os.killpg(child, number))

sources = {0, 3, terminal}
sizes = b""
while terminal in sources:
    # A size that came before something typed counts for it.
    for source in sorted(select.select(list(sources), [], [])[0], key=lambda one: one != 3):
        try:
            data = os.read(source, 65536)
        except OSError:  # EIO: nobody has the terminal open any more
            data = b""
        if source == terminal and data:
            view = memoryview(data)
            while view:
                view = view[os.write(1, view) :]
        elif source == 0 and data:
            view = memoryview(data)
            while view:
                view = view[os.write(terminal, view) :]
        elif source == 0:
            os.write(terminal, b"\x04")
        elif source == 3:
            *lines, sizes = (sizes + data).split(b"\n")
            for line in lines:
                resize(terminal, *map(int, line.split()))
        if not data:
            sources.discard(source)

_, status = os.waitpid(child, 0)
if os.WIFSIGNALED(status):
    signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
    os.kill(os.getpid(), os.WTERMSIG(status))
sys.exit(os.WEXITSTATUS(status))
