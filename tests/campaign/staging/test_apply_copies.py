"""Copies are whole or not there, never over others' files, and go again."""

from pathlib import Path

import pytest

from campaign.errors import EnvironmentFaultError, UsageError
from campaign.staging import apply_copies, staging_plan
from jobs.data import staged
from jobs.system import transfer
from tests.campaign.staging.test_strangers import plan_of

NAMES = ("a/one.bin", "a/two.bin", "b/three.bin")


@pytest.fixture
def home(tmp_path):
    """A folder with a plan: the rule advised takes two of three files, all takes all, the others none."""
    source, root = tmp_path / "data", tmp_path / "fast"
    root.mkdir()
    for number, name in enumerate(NAMES):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes(name.encode() * 1000 * (number + 1))
    staging_plan.save(tmp_path / "staging", plan_of(source, root, NAMES, advised=[1, 0], smallest=[], largest=[]))
    return tmp_path / "staging"


@pytest.fixture
def source(tmp_path, home):
    """The originals."""
    return tmp_path / "data"


def _apply(home, *rules):
    return apply_copies.apply(apply_copies.copying(home, rules or ("advised",)), lambda *_: None)


def test_what_a_rule_names_is_read_from_its_copies_until_that_is_undone(home, source):
    maps = _apply(home, "advised", "all")

    paths = [source / name for name in NAMES]
    found = staged(paths, maps["advised"])
    assert [path == str(original) for path, original in zip(found, paths, strict=True)] == [False, False, True]
    copies = staged(paths, maps["all"])
    assert [Path(copy).read_bytes() for copy in copies] == [path.read_bytes() for path in paths]
    assert apply_copies.undo(home) == (3, [])
    assert not any(path.exists() for path in (*maps.values(), staging_plan.copies_of(staging_plan.load(home))))
    assert apply_copies.undo(home) == (0, [])


def test_each_file_of_several_rules_is_copied_once_in_the_order_of_names_and_told(home, source):
    told = []
    what = apply_copies.copying(home, ["advised", "all"])

    apply_copies.apply(what, lambda *words: told.append(words))

    assert [name for name, *_ in what.wanted] == [*NAMES]
    assert str(what).startswith(f"3 files, 0.1 MB, of {source} would be copied to {source.parent}/fast/")
    assert told == [("copying", done, 3, "files") for done in (0, 3)]
    apply_copies.apply(what, lambda *words: told.append(words))
    assert told[2:] == [("copying", 3, 3, "files")]


def test_what_was_copied_is_not_copied_again_and_what_a_kill_left_goes(home, monkeypatch):
    _apply(home)
    copies = staging_plan.copies_of(staging_plan.load(home))
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
    assert not list(staging_plan.copies_of(staging_plan.load(home)).rglob("*.bin"))


def test_originals_that_are_no_longer_those_of_the_plan_are_not_copied(home, source):
    (source / NAMES[0]).touch()

    with pytest.raises(EnvironmentFaultError, match="1 files changed since they were listed"):
        _apply(home)


def test_the_first_rule_that_takes_nothing_is_refused(home):
    with pytest.raises(UsageError, match="stages nothing by the rule smallest: the capacity holds none"):
        _apply(home, "advised", "smallest", "largest")
    staging_plan.save(home, staging_plan.load(home) | {"why_not": "as slow"})
    with pytest.raises(UsageError, match="by the rule largest: as slow"):
        _apply(home, "largest", "smallest")


@pytest.mark.parametrize(("name", "text"), [("theirs", "x"), (".tfio-staged", "/another/folder")])
def test_a_folder_that_is_not_ours_is_left_alone(name, text, home):
    copies = staging_plan.copies_of(staging_plan.load(home))
    copies.mkdir(parents=True)
    (copies / name).write_text(text)

    for act in (_apply, apply_copies.undo):
        with pytest.raises(EnvironmentFaultError, match=r"not ours|copies of another"):
            act(home)
    assert [path.name for path in copies.iterdir()] == [name]


def test_what_may_be_the_last_copy_stays(home, source):
    _apply(home, "all")
    copies = staging_plan.copies_of(staging_plan.load(home))
    (source / NAMES[0]).unlink()
    (copies / "b" / "mine.txt").write_text("mine")

    assert apply_copies.undo(home) == (2, [copies / NAMES[0], copies / "b" / "mine.txt"])
    assert (copies / NAMES[0]).exists()
