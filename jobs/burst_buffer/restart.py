"""Snapshots as a training sees them: what was saved, how long that took, and which one to start again from."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from jobs import shapes
from jobs.burst_buffer import snapshots
from jobs.burst_buffer.snapshots import FILES
from jobs.errors import DamageError

if TYPE_CHECKING:
    from jobs.burst_buffer.journal import Committed


class DrainWarning(UserWarning):
    """The slow storage fails, or a snapshot was found damaged; nothing is lost that has another copy."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot that is durable."""

    name: str
    step: int
    path: Path  # the folder that was filled, under its final name; its fast copy is let go when room is needed
    where: Literal["fast", "slow", "only"]  # the storage that it is durable on; ``only`` where there is but one
    bytes: int
    saved_at: float  # when `save` was called, in seconds since 1970
    blocked_s: float  # how long `save` took, all in all: the training stood still
    write_s: float  # of which: writing, syncing and hashing
    waited_s: float  # and waiting for room on the fast storage
    troubles: tuple[str, ...] = ()  # what the drainer has had to say since the last save


def latest(*roots: Path) -> Path | None:
    """Return the files of the newest complete and verified snapshot, having read them all; None where there is none.

    Of two copies the one in the earlier of the `roots` is preferred. What is found damaged on the way is told as a
    `DrainWarning`, file by file.
    """
    places = [(snapshots.sequence(name), -place, root / name) for place, root in enumerate(roots) for name in _in(root)]
    for *_, folder in sorted(places, reverse=True):
        wrong = snapshots.verify(folder)
        if wrong is None:  # by a drainer, which has committed this one or a newer one
            return latest(*roots)
        if not wrong:
            return folder / FILES
        warnings.warn(f"{folder}: {', '.join(wrong)}", DrainWarning, stacklevel=3)
    return None


def _in(root: Path) -> list[str]:
    """Return the names of the snapshots in a folder; where it cannot be read, what the other one has is good."""
    try:
        return snapshots.names(root)
    except OSError as error:
        warnings.warn(f"{root} cannot be read: {error.strerror}", DrainWarning, stacklevel=4)
        return []


def times(snapshot: Snapshot, slow: Path, events: Mapping[str, Committed], ended_at: float | None) -> dict[str, Any]:
    """Return what a record holds of a snapshot; `ended_at` is None while the training goes on."""
    line = {
        key: getattr(snapshot, key) for key in ("name", "step", "where", "bytes", "blocked_s", "write_s", "waited_s")
    }
    line["troubles"] = list(snapshot.troubles)
    if snapshot.where != "fast":  # it is where it is to stay
        durable_fast_s = snapshot.blocked_s if snapshot.where == "only" else None
        drain = {"drain_s": 0.0, "exposed_s": 0.0, "durable_fast_s": durable_fast_s, "retries": 0}
        return {**line, **drain, "durable_slow_s": snapshot.blocked_s}
    event = events.get(snapshot.name) or _committed(slow / snapshot.name)
    line |= {"durable_fast_s": snapshot.blocked_s, "retries": event["retries"] if event else None}
    if event is None:
        return {**line, "drain_s": None, "exposed_s": None, "durable_slow_s": None}
    done, began = event["at"], event["started_at"]
    exposed_s = max(0.0, done - max(began, ended_at)) if ended_at is not None else 0.0
    return {**line, "drain_s": done - began, "exposed_s": exposed_s, "durable_slow_s": done - snapshot.saved_at}


class _DrainFacts(TypedDict):
    """What a manifest on the slow storage says of its drain."""

    drain_started_at: float
    drain_retries: int


def _committed(folder: Path) -> Committed | None:
    """Return what the drainer could not record before it died: the rename of a visible snapshot left its time."""
    try:
        facts = snapshots.read(folder).facts
        at = folder.stat().st_ctime
    except (OSError, DamageError):
        return None
    if shapes.fault(facts, _DrainFacts):
        return None
    began, retries = facts["drain_started_at"], facts["drain_retries"]
    return {"event": "committed", "name": folder.name, "at": at, "started_at": began, "retries": retries}
