"""A client of an object store that hides no retry: each failed request is counted, by what went wrong.

::

    client = Client(settings["storage"])
    for each in client.listed("images/"):
        data = client.get(each.key, each)
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.metadata
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from jobs.errors import JobError, ObjectStoreError
from jobs.model.declared import defaults
from jobs.model.settings import Node, ObjectStorage
from jobs.objects import credentials, faults, room
from jobs.objects.room import Room
from jobs.system import clock, untrusted

if TYPE_CHECKING:
    import obstore

_T = TypeVar("_T")
PART_BYTES = 16 << 20  # of a multipart upload; what is larger is uploaded so
_FIRST_PAUSE_S = 0.05
_LATE_WRITES = 3  # writes in a row that time out, after which a store is asked whether it answers reads
_NOBODY_S = 3.0  # how long is asked where nobody has ever answered: a gateway that restarts has, and is waited for
_OF_A_PAGE, _PAGES = 1000, 4  # objects that come at once, and the pages, each within its timeout, that they may take
_NO_END = "see that it is a store of objects, or name a larger storage.timeout_s"
_DATA_TRIES = 2  # what arrives whole and is not what the manifest says is asked for once more, no oftener


class Stored(NamedTuple):
    """An object: its key below the prefix, bytes, ETag and, where it is known, SHA-256 in hex digits."""

    key: str
    size: int
    etag: str | None = None
    sha256: str | None = None
    modified: float = 0.0  # when it was put, in seconds since 1970, where the store has listed it


class DataError(JobError):
    """An object is missing, or is not what its manifest says."""


@dataclass
class Counts:
    """What a client asked for and got."""

    requests: int = 0  # each counted once, however often it was sent
    bytes: int = 0
    errors: Counter[str] = field(default_factory=Counter)  # failed requests by what went wrong
    retries: int = 0
    first_byte_s: array[float] = field(default_factory=lambda: array("d"))  # of each get, its retries included
    whole_s: array[float] = field(default_factory=lambda: array("d"))


class Client:
    """Requests to one bucket, below a prefix; thread safe."""

    def __init__(self, storage: Node) -> None:
        """Take the node ``storage`` of the settings; no request is sent yet."""
        try:
            import obstore  # noqa: PLC0415 - only for objects
            from obstore.store import S3Store  # noqa: PLC0415
        except ImportError as error:
            raise ObjectStoreError("storage.kind=s3 needs obstore", "pip install 'tfio-campaign[s3]'") from error
        from jobs.objects import servers  # noqa: PLC0415 - psutil: finding the benchmarks is to be fast

        self.storage = {**defaults(ObjectStorage), **storage}
        self.prefix = f"{prefix}/" if (prefix := str(storage.get("prefix") or "").strip("/")) else ""
        self.counts, self.lock = Counts(), threading.Lock()
        self.fault: ObjectStoreError | None = None  # of a request that failed for good
        self.answered = False  # by the store, once
        self.errors = (obstore.exceptions.BaseError, OSError, DataError)
        self._obstore = obstore
        self.proxy = servers.proxy_to(storage["endpoint"])  # before obstore looks for one
        timeout = f"{int(self.storage['timeout_s'] * 1000)}ms"
        self._store = S3Store(
            storage["bucket"],
            endpoint=storage["endpoint"],
            region=storage["region"],
            virtual_hosted_style_request=False,
            client_options={
                "allow_http": urlsplit(storage["endpoint"]).scheme == "http",
                "allow_invalid_certificates": False,
                "http1_only": True,
                "timeout": timeout,
                "connect_timeout": timeout,
            },
            retry_config={"max_retries": 0},  # the retries are ours, so that each is counted
            **credentials.signing(),
        )

    @property
    def path(self) -> Node:
        """The way to the objects, for a record."""
        address = urlsplit(self.storage["endpoint"])
        return {
            "endpoint": self.storage["endpoint"],
            "bucket": self.storage["bucket"],
            "protocol": "HTTP/1.1",
            "tls": address.scheme == "https",
            "client": f"obstore {importlib.metadata.version('obstore')}",
            **({"proxy": self.proxy} if self.proxy else {}),
        }

    def url_of(self, key: str) -> str:
        """Name a key, or what lies below it, for people and records."""
        return f"s3://{self.storage['bucket']}/{self.prefix}{key}"

    def key_of(self, url: str) -> str:
        """Return the key that `url_of` has named."""
        return url.removeprefix(self.url_of(""))

    def get(
        self, key: str, known: Stored | None = None, span: tuple[int, int] | None = None, most: int | None = None
    ) -> obstore.Bytes:
        """Return an object's bytes, or those from ``span[0]`` to before ``span[1]``, held outside of Python's memory.

        `known` says what they must be: size, ETag and, with ``checksum``, SHA-256; `most` bounds those of an object
        whose size nobody knows. Raises DataError for an object that is missing or another one (and what it holds is not
        waited for), ObjectStoreError where the store fails for good: then for all later gets, too.
        """
        asked = _Asked(self, key, known, span, most)

        def once() -> obstore.Bytes:
            answer = self._obstore.get(self._store, asked.name, options=asked.options)
            asked.answered(answer)
            return asked.taken(answer.bytes())

        return self._until_done(asked, once)

    async def get_async(
        self, key: str, known: Stored | None = None, span: tuple[int, int] | None = None
    ) -> obstore.Bytes:
        """Return an object's bytes as `get` does."""
        asked = _Asked(self, key, known, span)
        while True:
            try:
                answer = await self._obstore.get_async(self._store, asked.name, options=asked.options)
                self.answered = True
                asked.answered(answer)
                return asked.taken(await answer.bytes_async())
            except self.errors as error:
                await asyncio.sleep(asked.pause_s(error))

    def put(self, key: str, data: bytes | memoryview | Path | Callable[[], Iterator[bytes]]) -> str | None:
        """Write an object, whole or not at all, in parts where it is large; returns its ETag.

        A function is called for the data each time that they are sent.
        """

        def once() -> Any:
            sent = data() if callable(data) else data
            return self._obstore.put(self._store, self.prefix + key, sent, chunk_size=PART_BYTES)

        # Ceph's answer to the last of several parts has no ETag that obstore 0.12 finds.
        put = self._sent(key, once, writes=True)
        etag: str | None = put["e_tag"] or self._sent(key, lambda: self._head(key))["e_tag"]
        return etag

    def _head(self, key: str) -> Any:
        return self._obstore.head(self._store, self.prefix + key)

    def listed(self, below: str = "") -> Iterator[Stored]:
        """Yield the objects whose keys begin with `below` and a slash, as the store lists them.

        Raises ObjectStoreError, also where the list has no end.
        """
        prefix = self.prefix + below
        for each in self._sent(below, lambda: asyncio.run(self._whole_list(prefix))):
            key, at = each["path"].removeprefix(self.prefix), each["last_modified"].timestamp()
            yield Stored(key, each["size"], each["e_tag"], modified=at)

    async def _whole_list(self, prefix: str) -> list[Any]:
        """Return what a store lists; obstore alone would ask for the next page for ever, deaf to Ctrl-C."""
        found: list[Any] = []
        pages = self._obstore.list(self._store, prefix or None, chunk_size=_OF_A_PAGE)
        try:
            while len(found) <= untrusted.MOST_NAMES:
                found += await asyncio.wait_for(anext(pages), _PAGES * self.storage["timeout_s"])
        except StopAsyncIteration:
            return found
        except TimeoutError:
            pass
        why = f"it lists {len(found)} objects, and says that there are more"
        raise ObjectStoreError(f"{self.storage['endpoint']}, bucket {self.storage['bucket']}: {why}", _NO_END)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; those that are not there are no matter."""
        if keys:
            names = [self.prefix + key for key in keys]
            self._sent(keys[0], lambda: self._obstore.delete(self._store, names), writes=True)

    def room(self) -> Room | None:
        """Return how full the bucket is, where its store says so."""
        return room.of(self._store)

    def require_room(self, size: int) -> None:
        """Raise ObjectStoreError where so many bytes more do not fit, as far as the store says."""
        found = self.room()
        if found and (why := found.lacks(size)):
            raise ObjectStoreError(f"{self.url_of('')}: {why}", room.CURE)

    def reads(self, key: str) -> bool:
        """Ask once for an object, which may be missing, and tell whether the store answers."""
        with suppress(self._obstore.exceptions.BaseError, OSError):
            with suppress(FileNotFoundError):
                self._head(key)
            return True
        return False

    def _sent(self, key: str, request: Callable[[], _T], *, writes: bool = False) -> _T:
        asked = _Asked(self, key, None, None)
        asked.writes = writes
        return self._until_done(asked, request)

    def _until_done(self, asked: _Asked, once: Callable[[], _T]) -> _T:
        while True:
            try:
                answer = once()
            except self.errors as error:
                clock.wait(asked.pause_s(error))
            else:
                self.answered = True
                return answer


class _Asked:
    """One request and its retries."""

    writes = False

    def __init__(
        self, client: Client, key: str, known: Stored | None, span: tuple[int, int] | None, most: int | None = None
    ) -> None:
        if client.fault:
            raise client.fault
        self._client, self.name, self._known, self._span, self._most = client, client.prefix + key, known, span, most
        self.options: obstore.GetOptions | None = {"range": span} if span else None
        self._key, self._tries, self._late, self._began = key, 0, 0, time.perf_counter()
        with client.lock:
            client.counts.requests += 1

    def answered(self, answer: obstore.GetResult) -> None:
        """Note that the first bytes are there; DataError where they are of another object than was asked for."""
        self._first_s = time.perf_counter() - self._began
        if (known := self._known) or self._most is not None:
            size, etag = answer.meta["size"], answer.meta["e_tag"]
            if known and known.etag and etag != known.etag:
                raise DataError(f"{self.name}: it has changed since it was listed (ETag)")
            if size != known.size if known else size > (self._most or 0):
                raise DataError(f"{self.name}: it has {size} bytes, which is no size of it")

    def taken(self, data: obstore.Bytes) -> obstore.Bytes:
        """Return the bytes if they are what was asked for; DataError where they are not."""
        counts, took_s = self._client.counts, time.perf_counter() - self._began
        wrong = self._wrong(data)
        if wrong:
            raise DataError(f"{self.name}: {wrong}")
        with self._client.lock:
            counts.first_byte_s.append(self._first_s)
            counts.whole_s.append(took_s)
            counts.bytes += len(data)
        return data

    def _wrong(self, data: obstore.Bytes) -> str:
        known, asked = self._known, self._span
        size = asked[1] - asked[0] if asked else known.size if known else len(data)
        if len(data) != size:
            return f"{len(data)} bytes came, and there should be {size}"
        if known and known.sha256 and self._client.storage["checksum"] and not asked:
            return "" if hashlib.sha256(data).hexdigest() == known.sha256 else "its bytes do not have their checksum"
        return ""

    def pause_s(self, error: BaseException) -> float:
        """Count a failed request; return how long to wait before the next, or raise what ends it."""
        client, text = self._client, str(error)
        self._tries += 1
        missing = isinstance(error, FileNotFoundError) and "NoSuchBucket" not in text
        refusal = None if missing else faults.refusal(error, text)
        again = not missing and refusal is None and self._tries <= min(client.storage["retries"], _most(error))
        word = "missing" if missing else "wrong data" if isinstance(error, DataError) else faults.word(text)
        self._late = self._late + 1 if word == "timeout" else 0
        full = self.writes and (self._late == _LATE_WRITES or (self._late and not again))
        if full and client.reads(self._key):
            refusal, again = faults.FULL, False
        pause: float = min(client.storage["backoff_s"], _FIRST_PAUSE_S * 2 ** min(self._tries, 30))
        client.answered |= word not in faults.NOBODY
        again = again and (client.answered or time.perf_counter() + pause - self._began <= _NOBODY_S)
        with client.lock:
            client.counts.errors[word] += 1
            client.counts.retries += again
        if again:
            return pause
        if missing:
            raise DataError(f"{self.name} is not there") from None
        if isinstance(error, DataError):
            raise error
        raise self._given_up(word, refusal) from None  # the error itself may quote what was signed

    def _given_up(self, word: str, refusal: tuple[str, str] | None) -> ObjectStoreError:
        """Return what ends this request, and all later ones."""
        storage = self._client.storage
        through = f" through the proxy {self._client.proxy}" if self._client.proxy else ""
        where = f"{storage['endpoint']}{through}, bucket {storage['bucket']}"
        took_s = time.perf_counter() - self._began
        cure = "see that it is up" + (", or name a larger storage.timeout_s" if word == "timeout" else "")
        cure += "" if self._client.answered else f", and that this is its address: {faults.NOBODY[word]}"
        gone = (f"gives no answer ({word}) after {self._tries} requests in {took_s:.0f} s", cure)
        why, hint = refusal or gone
        self._client.fault = ObjectStoreError(f"{where}: {why}", hint)
        return self._client.fault


def _most(error: BaseException) -> float:
    return _DATA_TRIES - 1 if isinstance(error, DataError) else float("inf")
