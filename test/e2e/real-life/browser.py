"""Speaks to a browser's debugging port: `goto URL`, `evaluate EXPRESSION`. One JSON value on stdout."""
import json
import sys
import time
import urllib.request

import websocket

PORT = 9222


def pages():
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/json/list", timeout=30) as answer:
                found = [page for page in json.load(answer) if page["type"] == "page"]
            if found:
                return found
        except OSError:
            pass
        time.sleep(0.5)
    raise SystemExit("The browser does not answer")


socket = websocket.create_connection(
    pages()[0]["webSocketDebuggerUrl"], timeout=120, suppress_origin=True
)
number = 0


def call(method, **params):
    global number
    number += 1
    socket.send(json.dumps({"id": number, "method": method, "params": params}))
    while True:
        answer = json.loads(socket.recv())
        if answer.get("id") == number:
            if "error" in answer:
                raise SystemExit(json.dumps(answer["error"]))
            return answer["result"]


def evaluate(expression):
    result = call("Runtime.evaluate", expression=expression, returnByValue=True)
    return result["result"].get("value")


def goto(url):
    """The title of the page, once it is this page that is there. A browser that starts may lose the first try."""
    while True:
        loader = call("Page.navigate", url=url).get("loaderId")
        patience = time.monotonic() + 60
        while time.monotonic() < patience:
            there = call("Page.getFrameTree")["frameTree"]["frame"]["loaderId"]
            if there == loader and evaluate("document.readyState") == "complete":
                return evaluate("document.title")
            time.sleep(0.2)


verb, argument = sys.argv[1:]
if verb == "goto":
    print(json.dumps(goto(argument)))
else:
    print(json.dumps(evaluate(argument)))
