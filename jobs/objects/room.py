"""How much room a bucket has, where its store says so: a Ceph gateway whose administrator has set a quota does."""

from __future__ import annotations

import urllib.request
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from obstore.store import S3Store

CURE = "remove objects that nobody needs, or have the quota raised; of a testbed: down, then up s3=true s3_size_gb=…"
_NEARLY = 0.9  # of its room: from here on a bucket is nearly full
_PATIENCE_S = 10.0


class Room(NamedTuple):
    """The bytes of all objects of a bucket, and the bytes that they may have; None: nothing is said of that."""

    used_bytes: int
    most_bytes: int | None

    def __str__(self) -> str:
        """Return it in words."""
        of = f" of {self.most_bytes / 1e9:.1f}" if self.most_bytes else ""
        return f"{self.used_bytes / 1e9:.1f}{of} GB used"

    @property
    def is_nearly_full(self) -> bool:
        """Whether little is left."""
        return self.most_bytes is not None and self.used_bytes > _NEARLY * self.most_bytes

    def lacks(self, size: int) -> str:
        """Say that so many bytes more have no room; empty where they have, as far as is known."""
        if self.most_bytes is None or size <= self.most_bytes - self.used_bytes:
            return ""
        return f"{size / 1e9:.1f} GB more do not fit in the bucket: {self}"


def of(store: S3Store) -> Room | None:
    """Ask for the room of a bucket, once; None where nothing is answered.

    By headers of ``HEAD /bucket`` that are Ceph's own; the quota is told to the owner of the bucket alone.
    """
    import obstore  # noqa: PLC0415 - of the extra s3

    from jobs.objects import servers  # noqa: PLC0415 - psutil: finding the benchmarks is to be fast

    with suppress(OSError, ValueError, obstore.exceptions.BaseError):
        address = obstore.sign(store, "HEAD", "", timedelta(seconds=_PATIENCE_S))
        servers.proxy_to(address)  # none is between us and this machine
        request = urllib.request.Request(address, method="HEAD")  # noqa: S310 - of the settings
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:  # noqa: S310
            used, most = (answer.headers[f"X-RGW-{word}"] for word in ("Bytes-Used", "Quota-Bucket-Size"))
        return Room(int(used), quota if (quota := int(most or 0)) > 0 else None) if used else None
    return None
