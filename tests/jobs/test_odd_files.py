"""Files that others may have written: an odd value or a missing key anywhere is refused by the reader's own error."""

import contextlib
import json

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from jobs.burst_buffer import BurstBuffer, claim, drain, restart, snapshots
from jobs.burst_buffer import journal as events
from jobs.data import journal, manifest
from jobs.errors import DamageError, DatasetError, FolderError
from jobs.system import emulated
from tests.jobs.jobs_factory import write_jpegs
from tests.jobs.odd_json import ODD, changed


def _dataset(root):
    write_jpegs(root / "images", 3)
    (root / manifest.MANIFEST_NAME).write_text(manifest.scan(root / "images").to_json())
    return root / manifest.MANIFEST_NAME, lambda: manifest.load(root)


def _buffer(root):
    buffer = BurstBuffer(root / "fast", root / "slow")
    buffer.save(1, lambda folder: (folder / "a").write_bytes(b"a"))
    buffer.close()
    return buffer


def _snapshot(root):
    buffer = _buffer(root)
    assert drain.drain(buffer.fast, buffer.slow) == 0
    buffer._journal.path.unlink()  # then the manifest alone tells of the drain  # noqa: SLF001
    (name,) = snapshots.names(buffer.slow)

    def read():
        assert buffer.report()
        restart.latest(buffer.slow)
        snapshots.read(buffer.slow / name)

    return buffer.slow / name / snapshots.MANIFEST_NAME, read


def _marker(root):
    buffer = _buffer(root)

    def read():
        drain.options_of(claim.read(buffer.fast))
        claim.pair(buffer.fast, buffer.slow)

    return buffer.fast / claim.MARKER_NAME, read


def _events(root):
    buffer = _buffer(root)
    assert drain.drain(buffer.fast, buffer.slow) == 0
    events.Journal(buffer.fast).tell("failed", reason="on purpose", failures=1)

    def read():
        assert buffer.report()
        buffer.troubles()
        events.last_reason(buffer.fast)

    return buffer.fast / claim.JOURNAL_NAME, read


def _images_made(root):
    kept = journal.Journal(root / "journal", {})
    kept.start({0: 1, 1: 2})
    return root / "journal", kept.read


def _testbed(root):
    bounds = dict.fromkeys(emulated.BOUNDS, 1.0)
    (root / emulated.MARKER).write_text(json.dumps({"name": "hdd", **bounds}))
    return root / emulated.MARKER, lambda: emulated.is_whole(json.loads((root / emulated.MARKER).read_text()))


@pytest.mark.parametrize("made", [_dataset, _snapshot, _marker, _events, _images_made, _testbed])
@pytest.mark.filterwarnings("ignore::jobs.burst_buffer.restart.DrainWarning")
def test_an_odd_value_or_a_missing_key_anywhere_is_refused(made, tmp_path, idle):
    file, read = made(tmp_path)
    good = file.read_text()
    lines = good.splitlines() if made in (_events, _images_made) else [good]

    @given(line=st.integers(0, len(lines) - 1), number=st.integers(0, 40), by=ODD)
    @settings(suppress_health_check=list(HealthCheck))
    def refused_or_read(line, number, by):
        odd = changed(json.loads(lines[line]), number, by)
        assume(odd is not None)
        file.write_text("\n".join([*lines[:line], json.dumps(odd), *lines[line + 1 :]]) + "\n")
        with contextlib.suppress(DatasetError, DamageError, FolderError):
            read()

    read()
    refused_or_read()
