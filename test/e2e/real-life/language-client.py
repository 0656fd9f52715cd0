"""Keeps a language server open for as long as it lives: each line on a FIFO asks it one thing."""
import json
import os
import subprocess

server = subprocess.Popen(["pylsp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
number = 0


def send(message):
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    server.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    server.stdin.flush()


def receive():
    length = 0
    while (line := server.stdout.readline().strip()) != b"":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    return json.loads(server.stdout.read(length))


def request(method, params):
    global number
    number += 1
    send({"id": number, "method": method, "params": params})
    while True:
        answer = receive()
        if answer.get("id") == number and "method" not in answer:
            return answer.get("result")


def hover(name):
    text = f"def {name}(value):\n    return value\n\n{name}(1)\n"
    uri = f"file:///home/user/{name}.py"
    document = {"uri": uri, "languageId": "python", "version": 1, "text": text}
    send({"method": "textDocument/didOpen", "params": {"textDocument": document}})
    where = {"textDocument": {"uri": uri}, "position": {"line": 3, "character": 1}}
    found = request("textDocument/definition", where)
    return found[0]["range"]["start"]["line"] if found else None


request("initialize", {"processId": None, "rootUri": None, "capabilities": {}})
send({"method": "initialized", "params": {}})
for name in ("asked", "answered"):
    if not os.path.exists(f"/tmp/{name}"):
        os.mkfifo(f"/tmp/{name}")
while True:
    with open("/tmp/asked") as asked:
        name = asked.read().strip()
    with open("/tmp/answered", "w") as answered:
        answered.write(json.dumps({"line": hover(name), "server": server.pid}))
