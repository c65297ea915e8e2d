"""Copies of a rank's files on a fast storage: whole, gone on with after a kill, of nobody else, gone after the run."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.benchmarks.run_files import rank_copies
from jobs.data.staged_copies import file_identity
from jobs.errors import DatasetError
from jobs.system import files, page_cache
from tests.jobs.jobs_factory import ROOT, fetched, read_all
from tests.lies.setup import memory

SIZES = (0, 1, 4096, 70_001, 1 << 20, 9_999, 5, 300_000)
KILLED = """
import os, signal, sys
from pathlib import Path
from jobs.benchmarks.run_files import rank_copies
from jobs.store import transfer
from jobs.data import staged_copies
staged_copies._BATCH_FILES, calls, sync = 3, [], transfer.sync_files
def killed(*words):
    sync(*words)
    calls.append(words)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
transfer.sync_files = killed
source, root = map(Path, sys.argv[1:])
request = {"settings": {"benchmark": {"stage": str(root)}, "cache": "as_is"}, "dataset": str(source)}
with rank_copies(request, 0, {path: path.stat().st_size for path in sorted(source.glob("*.h5"))}, None):
    pass
"""


@pytest.fixture
def originals(tmp_path):
    """Files of a data set, on the device."""
    (tmp_path / "data").mkdir()
    paths = [tmp_path / "data" / f"{number}.h5" for number in range(len(SIZES))]
    for path, size in zip(paths, SIZES, strict=True):
        path.write_bytes(os.urandom(size))
    page_cache.sync_file_system(tmp_path)
    return paths


@pytest.fixture
def fast(tmp_path):
    """The root of the fast storage."""
    (tmp_path / "fast").mkdir()
    return tmp_path / "fast"


@pytest.fixture
def stage(originals, fast):
    """Stage them, or some, as a run does."""

    def one(root=fast, rank=0, cache="as_is", listed_ns=None):
        settings = {"benchmark": {"stage": str(root)}, "cache": cache}
        request = {"settings": settings, "dataset": str(originals[0].parent), "listed_ns": listed_ns}
        return rank_copies(request, rank, dict(zip(originals[:-1], SIZES, strict=False)), None)

    return one


def files_below(folder):
    return sorted(path for path in folder.rglob("*") if not path.is_dir())


def test_copies_of_each_rank_are_whole_and_go_with_the_run(stage, originals, fast):
    before = [file_identity(path) for path in originals]

    with stage(f"{fast}/../{fast.name}") as first, stage(rank=1) as second:
        copies = [first.path_of(path) for path in originals[:-1]]
        assert [copy.read_bytes() for copy in copies] == [path.read_bytes() for path in originals[:-1]]
        assert all(copy.is_relative_to(fast) for copy in copies)
        assert {*copies}.isdisjoint(second.path_of(path) for path in originals[:-1])
        assert first.path_of(originals[-1]) == originals[-1]

    assert (first.figures["stage_files"], first.figures["stage_bytes"]) == (7, sum(SIZES[:-1]))
    assert files_below(fast) == []
    assert [file_identity(path) for path in originals] == before


def test_what_a_killed_run_left_is_gone_on_with_and_told(stage, originals, fast):
    words = [sys.executable, "-c", KILLED, str(originals[0].parent), str(fast)]
    died = subprocess.run(words, check=False, cwd=ROOT, capture_output=True, text=True)
    assert died.returncode == -signal.SIGKILL, died.stderr
    left = {path.name: path.stat().st_ctime_ns for path in files_below(fast) if path.suffix == ".h5"}
    assert len(left) == 6  # three with their names, three that were coming in

    with stage() as copies:
        assert (copies.figures["stage_found_files"], copies.figures["stage_files"]) == (3, 4)
        assert [copies.path_of(path).read_bytes() for path in originals] == [path.read_bytes() for path in originals]
        assert sum(copies.path_of(path).stat().st_ctime_ns == left.get(path.name) for path in originals[:-1]) == 3

    assert files_below(fast) == []


def test_copies_of_other_files_that_a_killed_run_left_make_room(stage, originals, fast):
    with stage() as copies:
        other = shutil.copy2(originals[-1], copies.path_of(originals[0]).parent)
        with pytest.raises(DatasetError, match="another run reads"), stage():
            pass
        shutil.copytree(Path(other).parent, fast / "kept")
    shutil.move(fast / "kept", Path(other).parent)

    with stage() as copies:
        assert copies.figures["stage_found_files"] == 7
        assert not Path(other).exists()


@pytest.mark.parametrize("harm", ["link", "size", "later", "gone"])
def test_an_original_that_is_not_as_listed_is_named_and_nothing_is_copied(harm, stage, originals, fast):
    odd, listed_ns = originals[3], originals[3].stat().st_ctime_ns + 10**12
    if harm == "size":
        odd.write_bytes(b"x")
    elif harm == "later":
        listed_ns = odd.stat().st_ctime_ns - 1
    else:
        odd.unlink()
    if harm == "link":
        odd.symlink_to(originals[4])

    with pytest.raises(DatasetError, match=f"{originals[0 if harm == 'later' else 3].parent}"):
        stage(listed_ns=listed_ns).__enter__()

    assert files_below(fast) == []


@pytest.mark.parametrize("trap", ["no root", "a link", "a FIFO", "another folder's", "others' files"])
def test_nothing_is_written_where_it_is_not_ours(trap, stage, fast, tmp_path):
    above, precious = fast / f"tfio-staged-{os.geteuid()}", tmp_path / "precious"
    precious.mkdir()
    (precious / "theirs").write_text("theirs")
    if trap == "no root":
        fast.rmdir()
    elif trap == "a link":
        above.symlink_to(precious)
    elif trap == "a FIFO":
        os.mkfifo(above)
    else:
        with stage() as copies:
            folder = copies.folder
        folder.mkdir()
        name = ".tfio-staged" if trap.startswith("another") else "theirs"
        (folder / name).write_text("theirs")
    before = files_below(tmp_path)

    with pytest.raises((DatasetError, OSError)):
        stage().__enter__()

    assert files_below(tmp_path) == before
    assert (precious / "theirs").read_text() == "theirs"


@pytest.mark.parametrize("said", ["beforehand", "while it is written"])
def test_a_full_storage_is_told_and_nothing_is_left_there(said, stage, staged, fast, monkeypatch):
    root = staged(memory, fast, mib=1)
    if said != "beforehand":
        monkeypatch.setattr(files, "free_bytes", lambda _: 1 << 40)

    with pytest.raises((DatasetError, OSError)) as error:
        stage(root).__enter__()

    assert "kB free" in str(error.value) if said == "beforehand" else error.value.errno == errno.ENOSPC
    assert files_below(root) == []


def test_a_cold_run_reads_its_originals_from_the_device(stage, originals, disk):
    read_all(originals)

    before = fetched()
    with stage(cache="cold") as copies:
        assert fetched() - before >= sum(SIZES[:-1])

    assert copies.expected["staged_cold"]["found"] is True
    with stage() as warm:
        assert "staged_cold" not in warm.expected
