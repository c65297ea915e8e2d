"""`python -m campaign clean`: what was made is listed, and nothing else is ever removed."""

import errno
import json
import os
import time

import pytest
from filelock import FileLock

from campaign.cli import clean
from campaign.errors import UsageError
from campaign.storage import made_data
from campaign.storage.locks import lock_path
from jobs.benchmarks.engines import datafile
from jobs.checkpoints import lease
from jobs.checkpoints.buffer import DirectTarget
from jobs.data import make, specs, staged_copies
from jobs.store.folder import Folder
from tests.campaign.work_lists import compose

TINY = {"files": 8, "median_bytes": 3000, "sigma": 0.4, "width": 64, "height": 64, "classes": 3, "seed": 0}


@pytest.fixture
def root(tmp_path, folder, monkeypatch):
    """The root of a storage; the folder above has a campaign in `results`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CAMPAIGN_YES", raising=False)
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def dataset(root):
    spec = specs.dataset_spec(TINY)
    path = root / "datasets" / specs.dataset_id("demo", spec)
    make.make_dataset(path, spec, name="demo", processes=1)
    return path


@pytest.fixture
def baseline(root):
    path = datafile.make_marked_folder(root / "baseline")
    datafile.make_data_file(path, 1 << 20, lambda *_: None)
    return path


@pytest.fixture
def copies(root, tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "a.jpg").write_bytes(b"a" * 100)
    (root / "staged").mkdir()
    path = root / "staged" / "0123456789"
    with staged_copies.lock_copies(path, tmp_path / "own"):
        stamp = staged_copies.file_identity(tmp_path / "own" / "a.jpg")
        for batch in staged_copies.missing_copies(tmp_path / "own", path, [("a.jpg", *stamp)]):
            staged_copies.copy_batch(tmp_path / "own", path, batch)
    return path


@pytest.fixture
def snapshots(root):
    (root / "checkpoints").mkdir()
    path = root / "checkpoints" / "alexnet-1"
    DirectTarget(path, keep=1, snapshot_bytes=1).close()
    return path


def _listed(capsys, *words):
    clean.main(["--json", *words])
    return {each["path"]: each for each in json.loads(capsys.readouterr().out)}


def test_all_that_was_made_is_listed_with_bytes_and_age(dataset, baseline, copies, snapshots, capsys):
    found = _listed(capsys)

    kinds = {dataset: "data set", baseline: "baseline", copies: "staged copies", snapshots: "snapshots"}
    assert {path: each["kind"] for path, each in found.items()} == {str(path): kind for path, kind in kinds.items()}
    assert found[str(baseline)]["bytes"] > 1 << 20
    assert all(0 <= each["age_s"] < 600 and not each["removed"] for each in found.values())
    assert clean.main([]) == 0
    assert str(dataset) in capsys.readouterr().out


def test_how_much_is_made_and_removed_is_told_in_units(baseline, root, monkeypatch, capsys):
    (file,) = baseline.glob("read-*.bin")
    held = sum(path.stat().st_size for path in baseline.iterdir())
    os.truncate(file, 2_340_000_000 - held + file.stat().st_size)
    for hours, age in ((23, "23 h"), (24, "1 d"), (59, "2 d")):
        os.utime(baseline / datafile.MARKER, (time.time() - 3600 * hours - 9,) * 2)
        assert clean.main([]) == 0
        head, line = capsys.readouterr().out.splitlines()
        assert head.split() == ["made", "MB", "files", "age", "place"]
        assert line.split() == ["baseline", "2,340.0", str(len([*baseline.iterdir()])), *age.split(), str(baseline)]
    questions = []
    monkeypatch.setattr(clean.console, "ask_for_yes", lambda question: not questions.append(question))

    assert clean.main([baseline.name]) == 0

    assert questions == ["remove 1 folder of 2.34 GB in all?"]
    assert "removed 1 folder of 2.34 GB" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["dataset", "baseline", "copies", "snapshots"])
def test_what_is_named_is_removed_and_nothing_beside_it(kind, dataset, baseline, copies, snapshots):
    doomed = {"dataset": dataset, "baseline": baseline, "copies": copies, "snapshots": snapshots}[kind]

    assert clean.main(["--yes", doomed.name[:8]]) == 0

    assert {path for path in (dataset, baseline, copies, snapshots) if path.exists()} == (
        {dataset, baseline, copies, snapshots} - {doomed}
    )
    assert (copies.parents[2] / "own" / "a.jpg").exists()


def test_nothing_is_removed_without_a_yes(dataset, monkeypatch):
    monkeypatch.setattr(clean.console, "ask_for_yes", lambda _: None)
    with pytest.raises(UsageError, match="no terminal"):
        clean.main(["demo"])
    monkeypatch.setattr(clean.console, "ask_for_yes", lambda _: False)
    assert clean.main(["demo"]) == 1

    assert dataset.exists()


def test_what_has_no_marker_of_ours_is_neither_listed_nor_removed(dataset, root, capsys):
    (dataset / make.MARKER_NAME).unlink()
    (root / "baseline").mkdir()
    (root / "baseline" / "read-5.bin").write_bytes(b"mine!")

    assert _listed(capsys, "--yes") == {}
    with pytest.raises(UsageError, match="no campaign made a folder that is called 'demo'"):
        clean.main(["--yes", "demo"])

    assert (dataset / "manifest.json").exists()
    assert (root / "baseline" / "read-5.bin").exists()


@pytest.mark.parametrize("odd", ["notes.txt", "class_000/mine.jpg", "linked.jpg"])
def test_a_data_set_with_a_file_that_is_not_ours_is_left(odd, dataset, tmp_path, capsys):
    if odd == "linked.jpg":
        (dataset / odd).symlink_to(tmp_path)
    else:
        (dataset / odd).write_text("mine")

    assert clean.main(["--yes", "demo"]) == 1

    assert os.path.lexists(dataset / odd)
    assert (dataset / "manifest.json").exists()
    assert f"no campaign has made the file {odd} in this folder" in capsys.readouterr().err


def test_no_link_is_followed(dataset, root, tmp_path, capsys):
    (tmp_path / "elsewhere").mkdir()
    dataset.rename(tmp_path / "elsewhere" / dataset.name)
    (root / "datasets" / dataset.name).symlink_to(tmp_path / "elsewhere" / dataset.name)

    assert _listed(capsys, "--yes") == {}

    assert (tmp_path / "elsewhere" / dataset.name / "manifest.json").exists()


@pytest.fixture
def impatient(monkeypatch):
    """Locks that somebody holds are not waited for."""
    monkeypatch.setattr(made_data, "_SOON_S", 0.05)
    monkeypatch.setattr(lease, "_TRAINER_WAIT_S", 0.05)


def test_where_nothing_can_be_locked_nothing_is_removed(dataset, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", flock)

    assert clean.main(["--yes", "demo"]) == 1
    assert (dataset / "manifest.json").exists()


@pytest.mark.usefixtures("impatient")
def test_what_a_run_holds_a_lock_on_is_left(dataset, baseline, snapshots, root, capsys):
    for lock, doomed in (
        (lock_path(root, root), dataset),  # a run that reads
        (dataset / make.LOCK_NAME, dataset),  # who makes it
        (baseline / datafile.LOCK, baseline),
        (lease.folder_lock(Folder(snapshots), "trainer").lock_file, snapshots),
    ):
        with FileLock(lock):
            assert clean.main(["--yes", str(doomed)]) == 1

        assert doomed.exists()
        assert "left:" in capsys.readouterr().err


def test_a_removal_that_is_killed_leaves_what_is_known_again(dataset, monkeypatch, capsys):
    remove, removed = made_data.files.remove, []

    def killed(path, **options):
        removed.append(path)
        if len(removed) > 5:
            raise KeyboardInterrupt
        remove(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(made_data.files, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            clean.main(["--yes", "demo"])

    capsys.readouterr()
    assert removed[0].name == "manifest.json"
    assert [*_listed(capsys)] == [str(dataset)]
    assert clean.main(["--yes", str(dataset)]) == 0
    assert not dataset.exists()


def test_somebody_elses_folder_is_left(dataset, capsys):
    if os.geteuid() != 0:
        pytest.skip("giving a folder away needs root")
    os.chown(dataset, 65534, 65534)

    assert _listed(capsys, "--yes") == {}
    assert dataset.exists()


def test_the_storages_of_the_words_are_looked_at(dataset, root, tmp_path, capsys):
    root.rename(tmp_path / "moved")

    assert _listed(capsys) == {}
    found = _listed(capsys, f"storage.root={tmp_path}/moved")

    assert [*found] == [str(tmp_path / "moved" / "datasets" / dataset.name)]
    assert compose()["storage"]["root"] == "data"


@pytest.mark.parametrize("flag", ["--dry-run", "--only=demo", "--cfg=job"])
def test_a_flag_of_a_campaign_is_refused_and_nothing_is_removed(flag, dataset):
    with pytest.raises(UsageError, match="unknown flag"):
        clean.main(["--yes", "demo", flag])

    assert dataset.exists()
