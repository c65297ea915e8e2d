"""Read and write objects with a client that counts every failed request by its cause, also before a retry.

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
"""The bytes to transfer within one ``storage.timeout_s``: a longer read is divided, and a larger put gets more time."""
MOST_PUT_BYTES = 5 << 30  # largest size of a put request: the limit of S3 and Ceph (rgw_max_put_size)
_FIRST_PAUSE_S = 0.05
_LATE_WRITES = 3  # after this number of write timeouts in a row, the client checks whether the store answers reads
_NOBODY_S = 3.0  # a store that has never answered gets retries for 3 s only; a store that has answered gets all retries
_OF_A_PAGE, _PAGES = 1000, 4  # objects per page of a list; a page may take _PAGES times ``storage.timeout_s``
_NO_END = "check that the endpoint is a store of objects, or set a larger storage.timeout_s"
_DATA_TRIES = 2  # largest number of requests for an object whose data differ from the manifest
ROOM_CURE = (
    "remove objects that nobody needs, or ask for a larger quota; for a testbed: down, then up s3=true s3_size_gb=…"
)
_NEARLY = 0.9  # a bucket counts as nearly full if more than this share of the allowed bytes is used
_PATIENCE_S = 10.0


class StoredObject(NamedTuple):
    """The description of an object in a store; ETag and SHA-256 are None if unknown."""

    key: str  # below the prefix of the client
    size: int  # in bytes
    etag: str | None = None
    sha256: str | None = None  # in hexadecimal
    modified: float = 0.0  # time of the put, in seconds since 1970; 0 if the object does not come from a list


class DataError(JobError):
    """Raised if an object is missing or differs from the manifest."""


class MissingError(DataError):
    """Raised if an object is missing."""


@dataclass
class RequestCounts:
    """Counters for the requests of a client, and the durations of the client's reads."""

    requests: int = 0  # a request that is sent several times counts once
    bytes: int = 0
    errors: Counter[str] = field(default_factory=Counter)  # failed requests by cause
    retries: int = 0
    # Seconds from the start of each get to the first byte, including the retries of the get.
    first_byte_s: array[float] = field(default_factory=lambda: array("d"))
    # Seconds from the start of each get to the last byte, including the retries of the get.
    whole_s: array[float] = field(default_factory=lambda: array("d"))


class BucketSpace(NamedTuple):
    """The number of bytes used in a bucket, and the number of bytes that the quota allows (None: unknown)."""

    used_bytes: int
    most_bytes: int | None

    def __str__(self) -> str:
        """Return the used and the allowed GB as text."""
        limit = f" of {self.most_bytes / 1e9:.1f}" if self.most_bytes else ""
        return f"{self.used_bytes / 1e9:.1f}{limit} GB used"

    @property
    def is_nearly_full(self) -> bool:
        """Return whether more than 90 % of the allowed bytes are used."""
        return self.most_bytes is not None and self.used_bytes > _NEARLY * self.most_bytes


def bucket_space(store: S3Store) -> BucketSpace | None:
    """Request the used and the allowed bytes of a bucket; return None if the store does not report these numbers.

    Only Ceph reports these numbers, in the headers of the answer to ``HEAD /bucket``. Ceph shows the quota only to the
    owner of the bucket.
    """
    import obstore  # noqa: PLC0415 - installed only with the extra s3

    from jobs.objects import servers  # noqa: PLC0415 - the import of psutil is slow

    with suppress(OSError, ValueError, obstore.exceptions.BaseError):
        url = obstore.sign(store, "HEAD", "", timedelta(seconds=_PATIENCE_S))
        servers.proxy_to(url)  # disables the proxy for an endpoint on this machine
        request = urllib.request.Request(url, method="HEAD")  # noqa: S310 - the endpoint of the settings
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:  # noqa: S310
            used, quota_text = (answer.headers[f"X-RGW-{word}"] for word in ("Bytes-Used", "Quota-Bucket-Size"))
        return BucketSpace(int(used), quota if (quota := int(quota_text or 0)) > 0 else None) if used else None
    return None


class Client:
    """A client for the objects below a prefix of one bucket; thread safe."""

    def __init__(self, storage: Node) -> None:
        """Make a client from the settings of a storage (the node ``storage``), without sending a request."""
        try:
            import obstore  # noqa: PLC0415 - needed only for objects
            from obstore.store import S3Store  # noqa: PLC0415
        except ImportError as error:
            raise ObjectStoreError("storage.kind=s3 needs obstore", "pip install 'tfio-campaign[s3]'") from error
        from jobs.objects import servers  # noqa: PLC0415 - the import of psutil is slow

        self.storage = {**declared_defaults(ObjectStorage), **storage}
        self.prefix = f"{prefix}/" if (prefix := str(storage.get("prefix") or "").strip("/")) else ""
        self.counts, self.lock = RequestCounts(), threading.Lock()
        # The error of the first request whose last retry failed; all later requests raise this error.
        self.fault: ObjectStoreError | None = None
        self.answered = False  # whether the store has ever answered
        self.errors = (obstore.exceptions.BaseError, OSError, DataError)
        self._obstore = obstore
        self.proxy = servers.proxy_to(storage["endpoint"])  # called before obstore looks for a proxy

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
                retry_config={"max_retries": 0},  # this class retries requests itself, and counts each retry
                **address.signing_arguments(),
            )

        self._store_of_parts = cache(store_of_parts)
        self._store = self._store_of_parts(1)

    @property
    def path(self) -> Node:
        """Return a description of the connection to the bucket (endpoint, protocol, proxy), for a record."""
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
        """Return the ``s3://`` URL of a key or of a prefix, for messages and records."""
        return f"s3://{self.storage['bucket']}/{self.prefix}{key}"

    def key_of(self, url: str) -> str:
        """Return the key in a URL from `url_of`."""
        return url.removeprefix(self.url_of(""))

    def get(
        self, key: str, known: StoredObject | None = None, span: tuple[int, int] | None = None, most: int | None = None
    ) -> obstore.Bytes:
        """Return the bytes of an object, or only the bytes from ``span[0]`` to ``span[1]`` (exclusive).

        The returned bytes are in obstore's memory. `known` has the expected size, ETag and, with ``checksum``, SHA-256
        of the object. `most` is the largest accepted size of an object of unknown size.

        Raises DataError if the object is missing or has changed; a changed size or ETag is reported before the data
        arrive. Raises ObjectStoreError if the last retry fails; then all later calls raise this error, too.
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
        """Return the bytes of an object, like `get`, without blocking the event loop."""
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
        """Write an object completely or not at all, and return its ETag; all data are in memory during the put.

        The data are sent in one request, not as a multipart upload. A killed multipart upload would leave parts in the
        store that S3 does not list. Raises ObjectStoreError, before a request is sent, if the data exceed the limit of
        one request.
        """
        size = data.stat().st_size if isinstance(data, Path) else len(data)
        if size > MOST_PUT_BYTES:
            message = f"{self.url_of(key)} would have {size:,} bytes, and one request takes at most {MOST_PUT_BYTES:,}"
            raise ObjectStoreError(message, "make smaller files: change dataset.*, or benchmark.file_mb of a baseline")
        parts = max(0, -(-size // PART_BYTES) - 1).bit_length()
        # The number of parts is rounded up to a power of two, so that few different stores are made.
        store, name = self._store_of_parts(1 << parts), self.prefix + key
        put = self._send(key, lambda: self._obstore.put(store, name, data, use_multipart=False), writes=True)
        etag: str | None = put["e_tag"]
        return etag

    def list_objects(self, below: str = "") -> Iterator[StoredObject]:
        """Yield the objects whose keys begin with `below` and a slash, in the store's order.

        Raises ObjectStoreError if the store fails, or if the list does not end.
        """
        prefix = self.prefix + below
        for entry in self._send(below, lambda: asyncio.run(self._whole_list(prefix))):
            key, modified = entry["path"].removeprefix(self.prefix), entry["last_modified"].timestamp()
            yield StoredObject(key, entry["size"], entry["e_tag"], modified=modified)

    async def _whole_list(self, prefix: str) -> list[Any]:
        """Return all objects that the store lists; the number of objects and the time of each page are limited.

        Without these limits, obstore could request pages for ever, and Ctrl-C would have no effect.
        """
        objects: list[Any] = []
        pages = self._obstore.list(self._store, prefix or None, chunk_size=_OF_A_PAGE)
        try:
            while len(objects) <= untrusted.MOST_NAMES:
                objects += await asyncio.wait_for(anext(pages), _PAGES * self.storage["timeout_s"])
        except StopAsyncIteration:
            return objects
        except TimeoutError:
            pass
        fault = f"the store lists {len(objects)} objects, and claims to have more"
        raise ObjectStoreError(f"{self.storage['endpoint']}, bucket {self.storage['bucket']}: {fault}", _NO_END)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects by their keys; missing objects are ignored."""
        if keys:
            names = [self.prefix + key for key in keys]
            self._send(keys[0], lambda: self._obstore.delete(self._store, names), writes=True)

    def bucket_space(self) -> BucketSpace | None:
        """Return the used and the allowed bytes of the bucket, or None if the store does not report them."""
        return bucket_space(self._store)

    def answers_reads(self, key: str) -> bool:
        """Send one read request for an object, and return whether the store answers; the object may be missing."""
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
        self._client, self.name, self._known, self._span, self._most_bytes = (
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
        """Measure the time to the first byte; raise DataError if the size or the ETag of the object is wrong."""
        self._first_s = time.perf_counter() - self._began
        if (known := self._known) or self._most_bytes is not None:
            size, etag = answer.meta["size"], answer.meta["e_tag"]
            if known and known.etag and etag != known.etag:
                raise DataError(f"{self.name}: the object has changed since it was listed (ETag)")
            if size != known.size if known else size > (self._most_bytes or 0):
                raise DataError(f"{self.name}: the object has {size} bytes, which is not the expected size")

    def accept(self, data: obstore.Bytes) -> obstore.Bytes:
        """Count the received bytes and return them; raise DataError if their number or checksum is wrong."""
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
            return "" if hashlib.sha256(data).hexdigest() == known.sha256 else "the checksum is wrong"
        return ""

    def pause_s(self, error: BaseException) -> float:
        """Count a failed request, and return the seconds to wait before the retry; without a retry, raise the error."""
        client, text = self._client, str(error)
        self._tries += 1
        is_missing = isinstance(error, FileNotFoundError) and "NoSuchBucket" not in text
        refusal = None if is_missing else faults.refusal(error, text)
        may_retry = self._tries <= min(client.storage["retries"], _most_tries(error))
        is_retried = not is_missing and refusal is None and may_retry
        word = "missing" if is_missing else "wrong data" if isinstance(error, DataError) else faults.cause_word(text)
        self._late = self._late + 1 if word == "timeout" else 0
        may_be_full = self.writes and (self._late == _LATE_WRITES or (self._late and not is_retried))
        if may_be_full and client.answers_reads(self._key):
            refusal, is_retried = faults.STORE_IS_FULL, False
        pause: float = min(client.storage["backoff_s"], _FIRST_PAUSE_S * 2 ** min(self._tries, 30))
        client.answered |= word not in faults.UNREACHABLE_CAUSES
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
        raise self._final_error(word, refusal) from None  # because the first error may contain signed values

    def _final_error(self, word: str, refusal: tuple[str, str] | None) -> ObjectStoreError:
        """Return the error of this request, which all later requests of the client raise, too."""
        storage = self._client.storage
        proxy = f" through the proxy {self._client.proxy}" if self._client.proxy else ""
        store = f"{storage['endpoint']}{proxy}, bucket {storage['bucket']}"
        took_s = time.perf_counter() - self._began
        cure = "check that the store runs" + (", or set a larger storage.timeout_s" if word == "timeout" else "")
        cure += "" if self._client.answered else f", and that the address is right: {faults.UNREACHABLE_CAUSES[word]}"
        silence = (f"gives no answer ({word}) after {self._tries} requests in {took_s:.0f} s", cure)
        fault, hint = refusal or silence
        self._client.fault = ObjectStoreError(f"{store}: {fault}", hint)
        return self._client.fault


def _most_tries(error: BaseException) -> float:
    return _DATA_TRIES - 1 if isinstance(error, DataError) else float("inf")
