"""A server that answers as an object store does, and fails as it is told: for what no real one does at will."""

from __future__ import annotations

import contextlib
import hashlib
import re
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

DENIED = (403, "AccessDenied")
SKEWED = (403, "RequestTimeTooSkewed")
BUSY = (503, "SlowDown")


class FakeStore(ThreadingHTTPServer):
    """Objects by their keys, one bucket; `script` is what befalls the next gets, a word or status and code each."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, objects, port=0):
        super().__init__(("127.0.0.1", port), _Handler)
        self.objects, self.script, self.gets = dict(objects), [], []
        self.put_in = {}  # the years, by key
        self.room, self.hangs = {}, ()  # headers of the bucket; methods that are not answered
        self.lists, self.rows_of_endless = 0, None  # begun; of each page of a list that never ends
        self.delay_s, self.under_way, self.most = 0.0, 0, 0
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def storage(self):
        """The node ``storage`` of the settings of its clients."""
        port = self.server_address[1]
        return {
            "name": "s3", "kind": "s3", "endpoint": f"http://127.0.0.1:{port}", "bucket": "bucket", "prefix": "",
            "region": "us-east-1", "engine": "threads", "concurrency": None, "timeout_s": 30.0, "retries": 5,
            "backoff_s": 0.05, "checksum": False,
        }  # fmt: skip

    def etag(self, key):
        return f'"{hashlib.md5(self.objects[key]).hexdigest()}"'  # noqa: S324 - as S3 has it

    def handle_error(self, request, client_address):
        """Say nothing: clients go away."""

    def close(self):
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body at once: else each answer waits 40 ms for the client's ACK

    def log_message(self, *_):
        pass

    def do_GET(self):
        address = urlsplit(self.path)
        _, bucket, *rest = unquote(address.path).split("/", 2)
        key = rest[0] if rest else ""
        if not key:
            asked = parse_qs(address.query)
            self.server.lists += "continuation-token" not in asked
            self._list(asked.get("prefix", [""])[0], bucket)
            return
        with self.server.lock:
            self.server.headers = self.headers  # of the last one
            fault = self.server.script.pop(0) if self.server.script else None
            self.server.gets.append(key)
            self.server.under_way += 1
            self.server.most = max(self.server.most, self.server.under_way)
        time.sleep(self.server.delay_s)
        with contextlib.suppress(OSError):
            self._object(key, fault)
        with self.server.lock:
            self.server.under_way -= 1

    def do_HEAD(self):
        key = self._key()
        if "HEAD" in self.server.hangs:
            time.sleep(1.0)
        elif key in self.server.objects:
            self._answer(200, b"", self.server.etag(key), len(self.server.objects[key]))
        else:
            self._answer(404 if key else 200, b"", more=self.server.room)

    def do_PUT(self):
        key, data = self._key(), self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(self.server.delay_s)
        if "PUT" in self.server.hangs:
            time.sleep(1.0)
            return
        with self.server.lock:
            fault = self.server.script.pop(0) if self.server.script else None
            if fault is None:
                self.server.objects[key] = data
        if fault:
            self._refuse(*fault)
        else:
            self._answer(200, b"", self.server.etag(key))

    def do_POST(self):
        """Delete several objects."""
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        keys = re.findall(r"<Key>([^<]*)</Key>", asked)
        for key in keys:
            self.server.objects.pop(key, None)
        rows = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{rows}</DeleteResult>".encode())

    def _key(self):
        return unquote(urlsplit(self.path).path).split("/", 2)[2]

    def _object(self, key, fault):
        if isinstance(fault, tuple):
            self._refuse(*fault)
        elif str(fault).startswith("http"):
            self._answer(307, b"", more={"Location": fault})
        elif fault == "hang":
            time.sleep(1.0)
        elif fault == "close":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        elif key not in self.server.objects:
            self._refuse(404, "NoSuchKey")
        else:
            data, status = self.server.objects[key], 200
            etag = '"other"' if fault == "changed" else self.server.etag(key)
            if span := self.headers.get("Range"):
                first, last = span.removeprefix("bytes=").split("-")
                self.content_range = f"bytes {first}-{last}/{len(data)}"
                data, status = data[int(first) : int(last) + 1], 206
            sent = {"cut": data[: len(data) // 2], "spoiled": bytes(len(data))}.get(fault, data)
            self._answer(status, sent, etag, len(data))
            if fault == "cut":
                self.close_connection = True

    def _refuse(self, status, code):
        self._answer(status, f"<Error><Code>{code}</Code><AWSAccessKeyId>AKIDTEST</AWSAccessKeyId></Error>".encode())

    def _answer(self, status, data, etag=None, length=None, more=()):
        self.send_response(status)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.send_header("Last-Modified", "Sun, 22 Nov 2026 10:00:00 GMT")
        for name, value in dict(more).items():
            self.send_header(name, value)
        if etag:
            self.send_header("ETag", etag)
        if status == 206:
            self.send_header("Content-Range", self.content_range)
        self.end_headers()
        self.wfile.write(data)

    def _list(self, prefix, bucket):
        if bucket != "bucket":
            self._refuse(404, "NoSuchBucket")
            return
        rows = [
            f"<Contents><Key>{key}</Key><Size>{len(data)}</Size><ETag>{self.server.etag(key)}</ETag>"
            f"<LastModified>{self.server.put_in.get(key, 2026)}-11-22T10:00:00.000Z</LastModified></Contents>"
            for key, data in sorted(self.server.objects.items())
            if key.startswith(prefix)
        ]
        more = "<IsTruncated>false</IsTruncated>"
        if self.server.rows_of_endless is not None:
            more = "<IsTruncated>true</IsTruncated><NextContinuationToken>next</NextContinuationToken>"
            rows = rows[: self.server.rows_of_endless]
        self._answer(200, f"<ListBucketResult>{more}{''.join(rows)}</ListBucketResult>".encode())
