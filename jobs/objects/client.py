"""A client of an object store that hides no retry: each failed request is counted by its cause.

::

    client = Client(settings["storage"])
    for stored in client.listed("images/"):
        data = client.get(stored.key, stored)
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.metadata
import threading
import time
import urllib.request
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from jobs.errors import JobError, ObjectStoreError
from jobs.model.declared import declared_defaults
from jobs.model.settings import Node, ObjectStorage
from jobs.objects import address, faults
from jobs.system import clock, untrusted

if TYPE_CHECKING:
    import obstore
    from obstore.store import S3Store

_T = TypeVar("_T")
PART_BYTES = 16 << 20
"""Bytes per ``storage.timeout_s``: reads are cut into such parts, and a put gets the time of its parts."""
MOST_PUT_BYTES = 5 << 30  # largest put in one request: the limit of S3 and Ceph (rgw_max_put_size)
_FIRST_PAUSE_S = 0.05
_LATE_WRITES = 3  # after as many timeouts of writes in a row, the client checks whether the store answers reads
_NOBODY_S = 3.0  # time limit for a store that has never answered; others get all retries
_OF_A_PAGE, _PAGES = 1000, 4  # objects per chunk of a list, and the timeouts that one chunk may take
_NO_END = "see that it is a store of objects, or name a larger storage.timeout_s"
_DATA_TRIES = 2  # requests for an object whose data contradict its manifest
ROOM_CURE = (
    "remove objects that nobody needs, or have the quota raised; of a testbed: down, then up s3=true s3_size_gb=…"
)
_NEARLY = 0.9  # used share of the allowed bytes from which a bucket is nearly full
_PATIENCE_S = 10.0


class StoredObject(NamedTuple):
    """An object: its key below the prefix, size in bytes, ETag and, if known, SHA-256 in hex digits."""

    key: str
    size: int
    etag: str | None = None
    sha256: str | None = None
    modified: float = 0.0  # time of the put, in seconds since 1970, if the store has listed it


class DataError(JobError):
    """An object that is missing, or differs from its manifest."""


class MissingError(DataError):
    """An object that is missing."""


@dataclass
class RequestCounts:
    """The counts of a client: requests, bytes, failures by cause, retries, and times of the reads."""

    requests: int = 0  # each request counts once, however often it was sent
    bytes: int = 0
    errors: Counter[str] = field(default_factory=Counter)  # failed requests by cause
    retries: int = 0
    first_byte_s: array[float] = field(default_factory=lambda: array("d"))  # one value per get, including its retries
    whole_s: array[float] = field(default_factory=lambda: array("d"))


class BucketSpace(NamedTuple):
    """The bytes of all objects of a bucket, and the largest allowed number of bytes (None: unknown)."""

    used_bytes: int
    most_bytes: int | None

    def __str__(self) -> str:
        """Return both numbers as text in GB."""
        limit = f" of {self.most_bytes / 1e9:.1f}" if self.most_bytes else ""
        return f"{self.used_bytes / 1e9:.1f}{limit} GB used"

    @property
    def is_nearly_full(self) -> bool:
        """Return whether more than 90 % of the allowed bytes are used."""
        return self.most_bytes is not None and self.used_bytes > _NEARLY * self.most_bytes


def bucket_space(store: S3Store) -> BucketSpace | None:
    """Return the used and allowed bytes of a bucket, by one request; None if the store does not report them.

    Only Ceph has the headers of ``HEAD /bucket`` for this; the quota is shown only to the owner of the bucket.
    """
    import obstore  # noqa: PLC0415 - the extra s3

    from jobs.objects import servers  # noqa: PLC0415 - psutil takes long to import

    with suppress(OSError, ValueError, obstore.exceptions.BaseError):
        url = obstore.sign(store, "HEAD", "", timedelta(seconds=_PATIENCE_S))
        servers.proxy_to(url)  # no proxy for this machine
        request = urllib.request.Request(url, method="HEAD")  # noqa: S310 - the endpoint of the settings
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:  # noqa: S310
            used, quota_text = (answer.headers[f"X-RGW-{word}"] for word in ("Bytes-Used", "Quota-Bucket-Size"))
        return BucketSpace(int(used), quota if (quota := int(quota_text or 0)) > 0 else None) if used else None
    return None


class Client:
    """A client for one bucket, below a prefix; thread safe."""

    def __init__(self, storage: Node) -> None:
        """Make a client of the settings' node ``storage``; no request is sent yet."""
        try:
            import obstore  # noqa: PLC0415 - only for objects
            from obstore.store import S3Store  # noqa: PLC0415
        except ImportError as error:
            raise ObjectStoreError("storage.kind=s3 needs obstore", "pip install 'tfio-campaign[s3]'") from error
        from jobs.objects import servers  # noqa: PLC0415 - psutil takes long to import

        self.storage = {**declared_defaults(ObjectStorage), **storage}
        self.prefix = f"{prefix}/" if (prefix := str(storage.get("prefix") or "").strip("/")) else ""
        self.counts, self.lock = RequestCounts(), threading.Lock()
        self.fault: ObjectStoreError | None = None  # the error of a request that failed finally
        self.answered = False  # whether the store has ever answered
        self.errors = (obstore.exceptions.BaseError, OSError, DataError)
        self._obstore = obstore
        self.proxy = servers.proxy_to(storage["endpoint"])  # before obstore looks for a proxy

        def store_of_parts(parts: int) -> S3Store:
            timeout_s = self.storage["timeout_s"]
            return S3Store(
                storage["bucket"],
                endpoint=storage["endpoint"],
                region=storage["region"],
                virtual_hosted_style_request=False,
                client_options={
                    "allow_http": urlsplit(storage["endpoint"]).scheme == "http",
                    "allow_invalid_certificates": False,
                    "http1_only": True,
                    "timeout": f"{int(timeout_s * 1000) * parts}ms",
                    "connect_timeout": f"{int(timeout_s * 1000)}ms",
                },
                retry_config={"max_retries": 0},  # the retries are ours, so that each is counted
                **address.signing_arguments(),
            )

        self._store_of_parts = cache(store_of_parts)
        self._store = self._store_of_parts(1)

    @property
    def path(self) -> Node:
        """Return the description of the path to the objects, for a record."""
        url = urlsplit(self.storage["endpoint"])
        return {
            "endpoint": self.storage["endpoint"],
            "bucket": self.storage["bucket"],
            "protocol": "HTTP/1.1",
            "tls": url.scheme == "https",
            "client": f"obstore {importlib.metadata.version('obstore')}",
            **({"proxy": self.proxy} if self.proxy else {}),
        }

    def url_of(self, key: str) -> str:
        """Return the URL of a key, or of a prefix, for people and records."""
        return f"s3://{self.storage['bucket']}/{self.prefix}{key}"

    def key_of(self, url: str) -> str:
        """Return the key of a URL that `url_of` has made."""
        return url.removeprefix(self.url_of(""))

    def get(
        self, key: str, known: StoredObject | None = None, span: tuple[int, int] | None = None, most: int | None = None
    ) -> obstore.Bytes:
        """Return the bytes of an object, or from ``span[0]`` to before ``span[1]``, in memory of the client.

        `known` has the expected size, ETag and, with ``checksum``, SHA-256; `most` is the largest size of an object of
        unknown size. Raises DataError if the object is missing or has changed, without waiting for its data;
        ObjectStoreError if the store fails finally; then all later calls raise it, too.
        """
        request = _Request(self, key, known, span, most)

        def send() -> obstore.Bytes:
            answer = self._obstore.get(self._store, request.name, options=request.options)
            request.check(answer)
            return request.accept(answer.bytes())

        return self._until_done(request, send)

    async def get_async(
        self, key: str, known: StoredObject | None = None, span: tuple[int, int] | None = None
    ) -> obstore.Bytes:
        """Return the bytes of an object, as `get` does."""
        request = _Request(self, key, known, span)
        while True:
            try:
                answer = await self._obstore.get_async(self._store, request.name, options=request.options)
                self.answered = True
                request.check(answer)
                return request.accept(await answer.bytes_async())
            except self.errors as error:
                await asyncio.sleep(request.pause_s(error))

    def put(self, key: str, data: bytes | memoryview | Path) -> str | None:
        """Write an object, complete or not at all, and return its ETag; the data is in memory meanwhile.

        It is one request and never a multipart upload: a killed upload leaves parts that S3 does not list. Raises
        ObjectStoreError, before anything is sent, if the data exceeds the limit of one request.
        """
        size = data.stat().st_size if isinstance(data, Path) else len(data)
        if size > MOST_PUT_BYTES:
            message = f"{self.url_of(key)} would have {size:,} bytes, and one request takes {MOST_PUT_BYTES:,}"
            raise ObjectStoreError(message, "make smaller files: dataset.*, or benchmark.file_mb of a baseline")
        parts = max(0, -(-size // PART_BYTES) - 1).bit_length()
        store, name = self._store_of_parts(1 << parts), self.prefix + key  # a power of two: few stores
        put = self._send(key, lambda: self._obstore.put(store, name, data, use_multipart=False), writes=True)
        etag: str | None = put["e_tag"]
        return etag

    def listed(self, below: str = "") -> Iterator[StoredObject]:
        """Yield the objects whose keys begin with `below` and a slash, in the store's order.

        Raises ObjectStoreError, also for a list without an end.
        """
        prefix = self.prefix + below
        for entry in self._send(below, lambda: asyncio.run(self._whole_list(prefix))):
            key, modified = entry["path"].removeprefix(self.prefix), entry["last_modified"].timestamp()
            yield StoredObject(key, entry["size"], entry["e_tag"], modified=modified)

    async def _whole_list(self, prefix: str) -> list[Any]:
        """Return all objects that the store lists; obstore alone could request pages for ever and ignore Ctrl-C."""
        objects: list[Any] = []
        pages = self._obstore.list(self._store, prefix or None, chunk_size=_OF_A_PAGE)
        try:
            while len(objects) <= untrusted.MOST_NAMES:
                objects += await asyncio.wait_for(anext(pages), _PAGES * self.storage["timeout_s"])
        except StopAsyncIteration:
            return objects
        except TimeoutError:
            pass
        fault = f"it lists {len(objects)} objects, and claims to have more"
        raise ObjectStoreError(f"{self.storage['endpoint']}, bucket {self.storage['bucket']}: {fault}", _NO_END)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; missing ones are ignored."""
        if keys:
            names = [self.prefix + key for key in keys]
            self._send(keys[0], lambda: self._obstore.delete(self._store, names), writes=True)

    def room(self) -> BucketSpace | None:
        """Return the used and the allowed bytes of the bucket; None if unknown."""
        return bucket_space(self._store)

    def reads(self, key: str) -> bool:
        """Return whether the store answers one request for an object, which may be missing."""
        with suppress(self._obstore.exceptions.BaseError, OSError):
            with suppress(FileNotFoundError):
                self._obstore.head(self._store, self.prefix + key)
            return True
        return False

    def _send(self, key: str, send: Callable[[], _T], *, writes: bool = False) -> _T:
        request = _Request(self, key, None, None)
        request.writes = writes
        return self._until_done(request, send)

    def _until_done(self, request: _Request, send: Callable[[], _T]) -> _T:
        while True:
            try:
                answer = send()
            except self.errors as error:
                clock.wait(request.pause_s(error))
            else:
                self.answered = True
                return answer


class _Request:
    """A request and its retries."""

    writes = False

    def __init__(
        self,
        client: Client,
        key: str,
        known: StoredObject | None,
        span: tuple[int, int] | None,
        most: int | None = None,
    ) -> None:
        if client.fault:
            raise client.fault
        self._client, self.name, self._known, self._span, self._most_tries = (
            client,
            client.prefix + key,
            known,
            span,
            most,
        )
        self.options: obstore.GetOptions | None = {"range": span} if span else None
        self._key, self._tries, self._late, self._began = key, 0, 0, time.perf_counter()
        with client.lock:
            client.counts.requests += 1

    def check(self, answer: obstore.GetResult) -> None:
        """Note the time to the first byte; raise DataError if the answer is another object."""
        self._first_s = time.perf_counter() - self._began
        if (known := self._known) or self._most_tries is not None:
            size, etag = answer.meta["size"], answer.meta["e_tag"]
            if known and known.etag and etag != known.etag:
                raise DataError(f"{self.name}: it has changed since it was listed (ETag)")
            if size != known.size if known else size > (self._most_tries or 0):
                raise DataError(f"{self.name}: it has {size} bytes, which is not its size")

    def accept(self, data: obstore.Bytes) -> obstore.Bytes:
        """Return the bytes and count them; raise DataError if they are not the expected ones."""
        counts, took_s = self._client.counts, time.perf_counter() - self._began
        fault = self._find_fault(data)
        if fault:
            raise DataError(f"{self.name}: {fault}")
        with self._client.lock:
            counts.first_byte_s.append(self._first_s)
            counts.whole_s.append(took_s)
            counts.bytes += len(data)
        return data

    def _find_fault(self, data: obstore.Bytes) -> str:
        known, span = self._known, self._span
        size = span[1] - span[0] if span else known.size if known else len(data)
        if len(data) != size:
            return f"{len(data)} bytes arrived instead of {size}"
        if known and known.sha256 and self._client.storage["checksum"] and not span:
            return "" if hashlib.sha256(data).hexdigest() == known.sha256 else "its checksum is wrong"
        return ""

    def pause_s(self, error: BaseException) -> float:
        """Count a failed request and return the seconds until its retry; raise the error if there is no retry."""
        client, text = self._client, str(error)
        self._tries += 1
        is_missing = isinstance(error, FileNotFoundError) and "NoSuchBucket" not in text
        refusal = None if is_missing else faults.refusal(error, text)
        may_retry = self._tries <= min(client.storage["retries"], _most_tries(error))
        is_retried = not is_missing and refusal is None and may_retry
        word = "missing" if is_missing else "wrong data" if isinstance(error, DataError) else faults.cause_word(text)
        self._late = self._late + 1 if word == "timeout" else 0
        may_be_full = self.writes and (self._late == _LATE_WRITES or (self._late and not is_retried))
        if may_be_full and client.reads(self._key):
            refusal, is_retried = faults.FULL, False
        pause: float = min(client.storage["backoff_s"], _FIRST_PAUSE_S * 2 ** min(self._tries, 30))
        client.answered |= word not in faults.NOBODY
        is_retried = is_retried and (client.answered or time.perf_counter() + pause - self._began <= _NOBODY_S)
        with client.lock:
            client.counts.errors[word] += 1
            client.counts.retries += is_retried
        if is_retried:
            return pause
        if is_missing:
            raise MissingError(f"{self.name} is missing") from None
        if isinstance(error, DataError):
            raise error
        raise self._final_error(word, refusal) from None  # the error may quote signed values

    def _final_error(self, word: str, refusal: tuple[str, str] | None) -> ObjectStoreError:
        """Return the error that ends this request and all later ones."""
        storage = self._client.storage
        proxy = f" through the proxy {self._client.proxy}" if self._client.proxy else ""
        store = f"{storage['endpoint']}{proxy}, bucket {storage['bucket']}"
        took_s = time.perf_counter() - self._began
        cure = "check that it runs" + (", or name a larger storage.timeout_s" if word == "timeout" else "")
        cure += "" if self._client.answered else f", and that its address is right: {faults.NOBODY[word]}"
        silence = (f"gives no answer ({word}) after {self._tries} requests in {took_s:.0f} s", cure)
        fault, hint = refusal or silence
        self._client.fault = ObjectStoreError(f"{store}: {fault}", hint)
        return self._client.fault


def _most_tries(error: BaseException) -> float:
    return _DATA_TRIES - 1 if isinstance(error, DataError) else float("inf")
