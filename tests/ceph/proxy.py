"""A proxy before a gateway that lies about what it was given: answers that end early, or have a wrong byte."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import threading


def truncated(body: bytes) -> bytes:
    return body[: len(body) // 2]


def flipped(body: bytes) -> bytes:
    return body[:-1] + bytes([body[-1] ^ 1])


@contextlib.contextmanager
def lying(endpoint, lie, where, times=10**9):
    """Serve an endpoint that gives `lie(body)` for gets of paths with `where` in them, so many times; yields it."""
    left = iter(range(times))

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            behind = http.client.HTTPConnection(endpoint.removeprefix("http://"), timeout=20)
            behind.request(self.command, self.path, asked, dict(self.headers))  # its Host, which is signed, too
            answer = behind.getresponse()
            body = answer.read()
            behind.close()
            self.send_response_only(answer.status)
            for key, value in answer.getheaders():
                if key.lower() not in ("connection", "transfer-encoding", "content-length"):
                    self.send_header(key, value)
            self.send_header("Content-Length", answer.getheader("Content-Length") or str(len(body)))
            self.end_headers()
            lies = self.command == "GET" and where in self.path and body and next(left, None) is not None
            given = lie(body) if lies else body
            self.wfile.write(given)
            self.close_connection = len(given) < len(body)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = answer  # noqa: N815 - http.server's

        def log_message(self, *_words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
