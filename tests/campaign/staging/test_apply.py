"""Copies are whole or not there, never over others' files, and go again."""

from pathlib import Path

import pytest

from campaign.errors import EnvironmentFaultError, UsageError
from campaign.staging import apply, plan
from jobs.burst_buffer import transfer
from jobs.data import staged
from jobs.data.staging import identity

NAMES = ("a/one.bin", "a/two.bin", "b/three.bin")


@pytest.fixture
def home(tmp_path):
    """A folder with a plan: the rule advised takes two of three files, all takes all, smallest none."""
    source, root = tmp_path / "data", tmp_path / "fast"
    root.mkdir()
    for number, name in enumerate(NAMES):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(name.encode() * 1000 * (number + 1))
    listed = [[name, *identity(source / name)] for name in NAMES]
    gain = {"gain": 0.2, "low": 0.1, "high": 0.3}
    chosen = {"advised": [0, 1], "smallest": [], "largest": [2], "all": [0, 1, 2]}
    rules = {rule: {"files": those, "bytes": 1, "gain": gain} for rule, those in chosen.items()}
    cost = {"seek_s": 1e-3, "byte_s": 1e-9}
    plan.save(tmp_path / "staging", {
        "schema": 1, "source": str(source), "root": str(root), "origin": "a cell", "runs": 5, "files": 3, "bytes": 6,
        "capacity_bytes": 100, "calls_at_once": 1.0, "called": str(source), "read_bytes": 6.0, "mb_per_s": 9.0,
        "waiting": 1.0, "slow": cost, "fast": cost, "why_not": None, "left_out": 0, "from_memory": None,
        "listed": listed, "rules": rules,
    })  # fmt: skip
    return tmp_path / "staging"


@pytest.fixture
def source(tmp_path, home):
    """The originals."""
    return tmp_path / "data"


def _apply(home, *rules):
    return apply.apply(apply.copying(home, rules or ("advised",)), lambda *_: None)


def test_what_a_rule_names_is_read_from_its_copies_until_that_is_undone(home, source):
    maps = _apply(home, "advised", "all")

    paths = [source / name for name in NAMES]
    found = staged(paths, maps["advised"])
    assert [path == str(original) for path, original in zip(found, paths, strict=True)] == [False, False, True]
    copies = staged(paths, maps["all"])
    assert [Path(copy).read_bytes() for copy in copies] == [path.read_bytes() for path in paths]
    assert apply.undo(home) == (3, [])
    assert not any(path.exists() for path in (*maps.values(), plan.copies_of(plan.load(home))))
    assert apply.undo(home) == (0, [])


def test_what_was_copied_is_not_copied_again_and_what_a_kill_left_goes(home, monkeypatch):
    _apply(home)
    copies = plan.copies_of(plan.load(home))
    (copies / ".incoming").mkdir()
    copied, copy = [], transfer.copy
    monkeypatch.setattr(transfer, "copy", lambda *words: (copied.extend(words[2]), copy(*words)))

    _apply(home, "all")

    assert [name for name, _ in copied] == ["b/three.bin"]
    assert not (copies / ".incoming").exists()


def test_a_copy_that_does_not_read_back_gets_no_name(home, monkeypatch):
    hashes = transfer.hashes
    damaged = lambda paths, **how: [(1, "x")] * len(paths) if how.get("cold") else hashes(paths)  # noqa: E731
    monkeypatch.setattr(transfer, "hashes", damaged)

    with pytest.raises(EnvironmentFaultError, match="its copy is damaged"):
        _apply(home)

    assert not (home / "advised.json").exists()
    assert not list(plan.copies_of(plan.load(home)).rglob("*.bin"))


def test_originals_that_are_no_longer_those_of_the_plan_are_not_copied(home, source):
    (source / NAMES[0]).touch()

    with pytest.raises(EnvironmentFaultError, match="1 files changed since they were listed"):
        _apply(home)


def test_a_rule_that_takes_nothing_is_refused(home):
    with pytest.raises(UsageError, match="stages nothing by the rule smallest"):
        _apply(home, "smallest")


@pytest.mark.parametrize(("name", "text"), [("theirs", "x"), (".tfio-staged", "/another/folder")])
def test_a_folder_that_is_not_ours_is_left_alone(name, text, home):
    copies = plan.copies_of(plan.load(home))
    copies.mkdir(parents=True)
    (copies / name).write_text(text)

    for act in (_apply, apply.undo):
        with pytest.raises(EnvironmentFaultError, match=r"not ours|copies of another"):
            act(home)
    assert [path.name for path in copies.iterdir()] == [name]


def test_what_may_be_the_last_copy_stays(home, source):
    _apply(home, "all")
    copies = plan.copies_of(plan.load(home))
    (source / NAMES[0]).unlink()
    (copies / "b" / "mine.txt").write_text("mine")

    assert apply.undo(home) == (2, [copies / NAMES[0], copies / "b" / "mine.txt"])
    assert (copies / NAMES[0]).exists()
