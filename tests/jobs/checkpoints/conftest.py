"""The two sides of a burst buffer whose slow one is a folder or a bucket, and what lies there as it is."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from jobs.checkpoints import drain_process, snapshots
from jobs.store import bucket

PUT_S = datetime(2026, 11, 22, 10, tzinfo=UTC).timestamp()  # of all objects, by the clock of the fake store


@pytest.fixture
def it_is(monkeypatch):
    """Set the clock of this machine, in seconds behind the time when the fake store says that all was put."""

    def set_clock(late_s):
        monkeypatch.setattr(snapshots, "time", SimpleNamespace(time=lambda: PUT_S + late_s))

    return set_clock


@pytest.fixture
def places(kind, raw, tmp_path, monkeypatch, it_is):
    """The two sides; drainers run by hand alone, and files of more than 100 kB have several objects."""
    monkeypatch.setattr(drain_process.Drainer, "poke", lambda self: None)
    monkeypatch.setattr(bucket, "PIECE_BYTES", 100_000)
    if kind == "folder":
        return tmp_path / "fast", str(raw.root)
    it_is(86_400)
    return tmp_path / "fast", f"{raw.root.storage['endpoint']}/bucket/p"
