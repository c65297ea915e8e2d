"""Objects of a store that speaks S3: a client, and how a run reads them. Only here ``obstore`` is imported.

What a run reads is known by `here`, as its rank is by `jobs.ranks.here`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobs.objects.source import Source

STORES = "ceph-osd"
"""The name of the servers' processes that read the disk."""
HERE: list[Source] = []
"""Of this process's run; at most one."""


def here() -> Source | None:
    """Return what this process's run reads from an object store; None where it reads files."""
    return HERE[-1] if HERE else None
