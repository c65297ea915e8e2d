"""A journal of the images that have reached the device."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Self

from jobs.system import files, untrusted
from jobs.system.page_cache import sync

_INTERVAL_S = 5.0  # what a power cut may cost; a sync of a slow disk takes about a second


class Journal:
    """Which images have reached the device, with their sizes in bytes.

    `path`: a text file: a line with `origin`, then one line `[[index, size], …]` for each sync. `origin`: what the
    images follow from; a journal of another origin counts as empty.
    """

    def __init__(self, path: Path, origin: Mapping[str, Any]) -> None:
        self._path = path
        self._origin = json.dumps(origin, sort_keys=True)
        self._waiting: dict[int, int] = {}
        self._synced_at = time.monotonic()

    def read(self) -> dict[int, int]:
        """Return the images of the journal on disk: size by index."""
        sizes: dict[int, int] = {}
        with suppress(FileNotFoundError, ValueError, TypeError):  # a kill may leave half a line, at the end only
            origin, *lines = files.read(self._path).splitlines()
            for line in lines if origin == self._origin.encode() else []:
                sizes.update(untrusted.json_value(line))
        return sizes

    def start(self, sizes: Mapping[int, int]) -> None:
        """Begin anew with what is known to be there."""
        files.write(self._path, f"{self._origin}\n{json.dumps(list(sizes.items()))}\n")

    def add(self, sizes: Mapping[int, int]) -> None:
        """Note images that have been written; every few seconds they are synced and entered."""
        self._waiting.update(sizes)
        if time.monotonic() - self._synced_at > _INTERVAL_S:
            self.flush()

    def flush(self) -> None:
        """Sync the images that were noted, then enter them."""
        if self._waiting:
            sync(self._path.parent)
            with files.append(self._path) as file:
                file.write(json.dumps(list(self._waiting.items())).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        self._waiting.clear()
        self._synced_at = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        """Enter what was noted, after an error, too: a full device must not cost what fitted on it."""
        with suppress(OSError) if kind else nullcontext():
            self.flush()
