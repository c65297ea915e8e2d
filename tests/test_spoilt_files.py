"""Files that others may have made, spoilt at random places: each is read, or refused with the error of its reader."""

import contextlib
import json
import random
from pathlib import Path

import pytest

from analysis.errors import AnalysisError
from analysis.mlperf.dlio_folder import read_folder
from analysis.mlperf.referee import Definition, judge
from analysis.mlperf.referee_report import document
from analysis.traces import posix
from analysis.traces.system import TraceError
from campaign.errors import CampaignError
from campaign.staging import staging_plan
from jobs.burst_buffer import BurstBuffer
from jobs.checkpoints import drain_loop, drain_process, lease, restart
from jobs.checkpoints.lease import JOURNAL_NAME, MARKER_NAME
from jobs.checkpoints.snapshots import MANIFEST_NAME, Snapshots
from jobs.data import manifest, staged_copies
from jobs.errors import DamageError, DatasetError, FolderError, JobError
from jobs.events import posix_window, read_time_logs, tensorflow_trace
from jobs.events.table import EventsError
from jobs.profiler import Profile, saved_profiles
from jobs.store.folder import Folder
from jobs.store.store import JOURNAL_PREFIX, Journal, PutResult, StoreEntry
from tests.analysis.mlperf.dlio_factory import dlio_run
from tests.campaign.staging.test_strangers import plan_of
from tests.jobs.events import logs, spaces
from tests.jobs.odd_json import VALUES, changed

ROOT = Path(__file__).parents[1]
LINES = [("python", [("campaign step", 0, 100, 1)]), ("tf_data/1", [("a:ReadFile", 10, 40), ("b:Map", 30, 60)])]
EVENTS = [logs.event("read", 10 * number, 10 * number + 5, size=100) for number in range(6)]
ODD_SHARE = 0.4
JOURNALS = {"files that are made", "journal of a burst buffer"}  # of which a torn line counts for nothing
pytestmark = pytest.mark.filterwarnings("ignore::jobs.checkpoints.restart.DrainWarning")
MAP = {"schema": 1, "source": "/a", "copies": "/b", "root": "/b", "files": [["x", 1, 1], ["y/z", 2, 5]]}
OF_JOBS = (DatasetError, DamageError, FolderError)
INSERTED = (b"\x00", b"\xff" * 4, b"9" * 30, b"[" * 70, b"\x7f\xff\xff\xff", b'"', b"-1", b"1e999", b"../")


def profiled(path):
    with Profile() as profile, (ROOT / "pyproject.toml").open("rb") as file:
        file.read()
    return profile.save if path.suffix == ".npz" else profile.darshan


def json_of(value):
    return lambda path: path.write_text(json.dumps(value))


def buffer_of(path):
    buffer = BurstBuffer(path.parent / "fast", path.parent / "slow")
    buffer.save(1, lambda folder: (folder / "a").write_bytes(b"a"))
    buffer.close()
    assert drain_loop.drain_snapshots(buffer.fast, buffer.slow) == 0
    return buffer


def snapshot_of(path):
    """Return the manifest of a snapshot, and what reads it: without a journal it alone tells of the drain."""
    buffer = buffer_of(path)
    (buffer.fast / JOURNAL_NAME).unlink()
    slow = Snapshots(buffer.slow)
    (name,) = slow.names()

    def read(_):
        assert buffer.report()
        restart.latest_snapshot(buffer.slow)
        slow.read(name)

    return buffer.slow.root / name / MANIFEST_NAME, read


def marker_of(path):
    buffer = buffer_of(path)

    def read(_):
        drain_loop.options_in_marker(lease.read_marker(Folder(buffer.fast)))
        lease.identify_pair(Folder(buffer.fast), buffer.slow)

    return buffer.fast / MARKER_NAME, read


def events_of(path):
    buffer = buffer_of(path)
    drain_process.DrainJournal(buffer.fast).append("failed", reason="on purpose", failures=1)

    def read(_):
        assert buffer.report()
        buffer.troubles()
        drain_process.last_reason(buffer.fast)

    return buffer.fast / JOURNAL_NAME, read


def files_made(path):
    store = Folder(path.parent)
    entries = {"0": StoreEntry(1), "1": StoreEntry(2), "2": StoreEntry(3)}
    with Journal(store, {}) as journal:
        journal.add({0: PutResult(1), 1: PutResult(2), 2: PutResult(3, "etag", "sha256")})
    (part,) = [name for name in store.names() if name.startswith(JOURNAL_PREFIX)]
    return store.root / part, lambda _: journal.read({**entries, part: StoreEntry(1)}, [*entries])


# Name of the file, how a good one is made, how it is read, and the errors that may come of it.
FORMATS = {
    "profile, by the jobs": ("profile.npz", lambda path: profiled(path)(path), posix_window.read_window, EventsError),
    "profile, by the analysis": ("profile.npz", lambda path: profiled(path)(path), posix.read_profile, TraceError),
    "trace": ("a.xplane.pb", lambda path: spaces.written(path, LINES), tensorflow_trace.read_trace, EventsError),
    "table of a trace": ("a.npz", lambda path: spaces.table(path, LINES), tensorflow_trace.read_trace, EventsError),
    "time log": (
        "a.timelog", lambda path: logs.stream(path, EVENTS), lambda path: read_time_logs.read_logs([path]), EventsError,
    ),
    "plan of copies": (
        "plan.json", json_of(plan_of("/a", "/b", ["x", "y/z"])), lambda path: staging_plan.load_plan(path.parent),
        CampaignError,
    ),
    "map of copies": ("map.json", json_of(MAP), staged_copies.load_map, DatasetError),
    "list of a data set": (
        "manifest.json",
        lambda path: path.write_text(manifest.scan_folder(images_in(path.parent)).to_json()),
        lambda path: manifest.load_manifest(path.parent), DatasetError,
    ),
    **{
        f"run of DLIO, {name}": (
            name, lambda path: dlio_run(path.parent, ranks=2, epochs=2, steps=6),
            lambda path: document([judge(read_folder(path.parent), Definition())]), AnalysisError,
        )
        for name in ("1_output.json", "0_per_epoch_stats.json", "summary.json")
    },
    "files that are made": ("journal", files_made, None, DatasetError),
    "snapshot": ("x", snapshot_of, None, OF_JOBS),
    "marker of a burst buffer": ("x", marker_of, None, OF_JOBS),
    "journal of a burst buffer": ("x", events_of, None, OF_JOBS),
}  # fmt: skip


def images_in(folder):
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
        (folder / name / "1.jpg").write_bytes(b"x" * 100)
    return folder


def odd(data, chance):
    """JSON with an odd value, or none, in the place of one node of a line; None for what is no JSON."""
    lines = data.split(b"\n") if b"\n{" in data else [data]
    number = chance.randrange(len(lines))
    with contextlib.suppress(ValueError):
        lines[number] = json.dumps(
            changed(json.loads(lines[number]), chance.randrange(40), chance.choice(VALUES))
        ).encode()
        return b"\n".join(lines)


def spoilt(data, chance):
    """The bytes with up to three faults: some changed, cut out, doubled, put in, or the end cut off; or odd JSON."""
    if chance.random() < ODD_SHARE and (wrong := odd(data, chance)):
        return wrong
    for _ in range(chance.randint(1, 3)):
        start = chance.randrange(len(data) + 1)
        end = min(len(data), start + chance.choice((1, 1, 2, 8, 64)))
        part = data[start:end]
        new = chance.choice(
            (bytes(byte ^ 1 << chance.randrange(8) for byte in part), b"", part * 2, chance.choice(INSERTED) + part)
        )
        data = data[:start] + (new + data[end:] if chance.random() < 0.95 else b"")
    return data


def tried(name, folder, number):
    """Spoil a good file so many times; returns how many of them were refused."""
    file, make, read, errors = FORMATS[name]
    path = folder / "x" / file
    path.parent.mkdir()
    made = make(path)
    path, read = (path, read) if read else made
    read(path)
    good, chance, refused = path.read_bytes(), random.Random(name), 0  # noqa: S311 - the same faults each time
    for _ in range(number):
        path.write_bytes(spoilt(good, chance))
        try:
            read(path)
        except errors:
            refused += 1
    return refused


@pytest.fixture(autouse=True)
def _idle(monkeypatch):
    """No drainer is started."""
    monkeypatch.setattr(drain_process.Drainer, "poke", lambda self: None)


@pytest.mark.parametrize("name", FORMATS)
def test_a_spoilt_file_is_read_or_refused_and_nothing_else(name, tmp_path):
    assert tried(name, tmp_path, 60) > 0 or name in JOURNALS


@pytest.mark.long
@pytest.mark.parametrize("name", FORMATS)
def test_many_spoilt_files_are_read_or_refused_and_nothing_else(name, tmp_path):
    assert tried(name, tmp_path, 3000) > 0 or name in JOURNALS


@pytest.mark.long
def test_a_spoilt_darshan_log_is_read_or_refused_and_never_ends_this_process(tmp_path, monkeypatch):
    monkeypatch.setitem(
        FORMATS, "darshan", ("a.darshan", lambda path: profiled(path)(path), saved_profiles.read_profile, JobError)
    )

    assert tried("darshan", tmp_path, 25) > 0
