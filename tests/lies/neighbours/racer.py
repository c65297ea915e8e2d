"""A neighbour that reads files at a chosen moment, which inotify(7) tells it."""

from __future__ import annotations

import ctypes
import os
import select
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

_ACCESS, _OPEN = 0x1, 0x20
_EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name
_COUNTED_S, _OVER_S = 0.005, 0.03  # nothing happens for so long: the count is over, the run is over


class Racer:
    """Reads `targets` before each run of the campaign on `paths` (all in one folder), or during it.

    Whoever evicts files and counts their pages opens them and reads nothing: when all were opened, nothing was read
    and nothing more happens, the count is over. The first read is the beginning of the run.
    """

    def __init__(self, paths: Sequence[Path], targets: Sequence[Path], *, during: bool) -> None:
        self._names, self._folder = frozenset(path.name for path in paths), paths[0].parent
        self._targets, self._during = targets, during
        self.times, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        """Begin to watch."""
        libc = ctypes.CDLL(None)
        self._fd = libc.inotify_init1(os.O_NONBLOCK)
        libc.inotify_add_watch(self._fd, os.fsencode(self._folder), _ACCESS | _OPEN)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._stop.set()
        self._thread.join()
        os.close(self._fd)

    def _watch(self) -> None:
        opened: set[str] = set()
        while not self._stop.is_set():
            events = self._events(_COUNTED_S)
            began = any(mask & _ACCESS for mask, _ in events)
            opened = set() if began else opened | {name for _, name in events}
            if began if self._during else not events and opened >= self._names:
                self._read()
                opened = set()

    def _read(self) -> None:
        for path in self._targets:
            path.read_bytes()
        self.times += 1
        while self._events(_OVER_S if self._during else 0):  # its own reads, and those of the run that has begun
            pass

    def _events(self, wait_s: float) -> list[tuple[int, str]]:
        """Return what has happened, each as mask and file name; wait so long for something to happen."""
        found: list[tuple[int, str]] = []
        if not select.select([self._fd], [], [], wait_s)[0]:
            return found
        text = os.read(self._fd, 1 << 20)
        while text:
            _, mask, _, length = _EVENT.unpack_from(text)
            name = text[_EVENT.size : _EVENT.size + length].rstrip(b"\0")
            found.append((mask, os.fsdecode(name)))
            text = text[_EVENT.size + length :]
        return found
