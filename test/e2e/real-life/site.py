"""A site with a login: sessions live in its memory and on its disk, the page counts in its own memory."""
import http.cookies
import http.server
import json
import os
import secrets
import sys

STORE = "/home/user/site-sessions.json"
sessions = json.load(open(STORE)) if os.path.exists(STORE) else {}

PAGE = """<!doctype html><title>home of %(user)s</title><p id=user>%(user)s</p>
<script>window.counter = 0; setInterval(() => { window.counter += 1; }, 200);</script>"""


class Site(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def answer(self, text, cookie=None):
        self.send_response(200)
        self.send_header("content-type", "text/html")
        if cookie:
            self.send_header("set-cookie", f"session={cookie}; Max-Age=31536000; Path=/")
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        cookie = http.cookies.SimpleCookie(self.headers.get("cookie", "")).get("session")
        if self.path.startswith("/login?"):
            name = secrets.token_hex(8)
            sessions[name] = self.path.partition("?")[2]
            with open(STORE + ".new", "w") as file:
                json.dump(sessions, file)
                file.flush()
                os.fsync(file.fileno())
            os.rename(STORE + ".new", STORE)
            self.answer(PAGE % {"user": sessions[name]}, name)
        else:
            user = sessions.get(cookie.value if cookie else "", "nobody")
            self.answer(PAGE % {"user": user})


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Site).serve_forever()
