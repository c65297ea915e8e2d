"""Copies are whole or not there, never over others' files, and go again."""

from pathlib import Path

import pytest

from campaign.errors import EnvironmentFaultError, UsageError
from campaign.staging import apply_copies, staging_plan
from jobs.data import staged_paths
from jobs.store import transfer
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
    staging_plan.save_plan(tmp_path / "staging", plan_of(source, root, NAMES, advised=[1, 0], smallest=[], largest=[]))
    return tmp_path / "staging"


@pytest.fixture
def source(tmp_path, home):
    """The originals."""
    return tmp_path / "data"


def _apply(home, *rules):
    return apply_copies.apply_plan(apply_copies.copy_request(home, rules or ("advised",)), lambda *_: None)


def test_what_a_rule_names_is_read_from_its_copies_until_that_is_undone(home, source):
    maps = _apply(home, "advised", "all")

    paths = [source / name for name in NAMES]
    found = staged_paths(paths, maps["advised"])
    assert [path == str(original) for path, original in zip(found, paths, strict=True)] == [False, False, True]
    copies = staged_paths(paths, maps["all"])
    assert [Path(copy).read_bytes() for copy in copies] == [path.read_bytes() for path in paths]
    assert apply_copies.undo_plan(home) == (3, [])
    assert not any(path.exists() for path in (*maps.values(), staging_plan.copies_folder(staging_plan.load_plan(home))))
    assert apply_copies.undo_plan(home) == (0, [])


def test_each_file_of_several_rules_is_copied_once_in_the_order_of_names_and_told(home, source):
    told = []
    what = apply_copies.copy_request(home, ["advised", "all"])

    assert str(what).startswith(f"3 files, 0.1 MB, of {source} would be copied to {source.parent}/fast/")
    apply_copies.apply_plan(what, lambda *words: told.append(words))

    assert [name for name, *_ in what.wanted_files] == [*NAMES]
    assert told == [("copying", done, 3, "files") for done in (0, 3)]
    apply_copies.apply_plan(what, lambda *words: told.append(words))
    assert told[2:] == [("copying", 3, 3, "files")]


def test_only_what_is_still_to_copy_is_told(home, source):
    _apply(home)

    assert str(apply_copies.copy_request(home, ["all"])).startswith(f"1 file, 0.0 MB, of {source} would be copied to ")
    assert str(apply_copies.copy_request(home, ["advised"])).startswith(f"2 files, 0.0 MB, of {source} are already ")


def test_rules_that_together_exceed_the_capacity_are_refused_before_anything_is_copied(home, source):
    root, capacity = source.parent / "fast", 36_864  # 9,000 and 18,000 bytes need 12,288 and 20,480 bytes on the disk
    plan = plan_of(source, root, NAMES, advised=[0], smallest=[1], largest=[2])
    staging_plan.save_plan(home, plan | {"capacity_bytes": capacity})

    assert apply_copies.copy_request(home, ["advised", "smallest"])
    with pytest.raises(UsageError, match=r"smallest and largest need .* MB together, but .* is 0\.0 MB"):
        apply_copies.copy_request(home, ["smallest", "largest"])
    assert not any(root.iterdir())


def test_a_copy_that_does_not_read_back_gets_no_name(home, monkeypatch):
    hashes = transfer.hash_files
    damaged = lambda paths, **how: [(1, "x")] * len(paths) if how.get("cold") else hashes(paths)  # noqa: E731
    monkeypatch.setattr(transfer, "hash_files", damaged)

    with pytest.raises(EnvironmentFaultError, match=r"copies are damaged: a/one\.bin has 1 bytes of 9000"):
        _apply(home)

    assert not (home / "advised.json").exists()
    assert not list(staging_plan.copies_folder(staging_plan.load_plan(home)).rglob("*.bin"))


def test_originals_that_are_no_longer_those_of_the_plan_are_not_copied(home, source):
    (source / NAMES[0]).touch()

    with pytest.raises(EnvironmentFaultError, match="1 files changed since they were listed"):
        _apply(home)


def test_the_first_rule_that_takes_nothing_is_refused(home):
    with pytest.raises(UsageError, match="the plan has no file for the rule smallest: the capacity is too small"):
        _apply(home, "advised", "smallest", "largest")
    staging_plan.save_plan(home, staging_plan.load_plan(home) | {"why_not": "as slow"})
    with pytest.raises(UsageError, match="for the rule largest: as slow"):
        _apply(home, "largest", "smallest")


@pytest.mark.parametrize(("name", "text"), [("theirs", "x"), (".tfio-staged", "/another/folder")])
def test_a_folder_that_is_not_ours_is_left_alone(name, text, home):
    copies = staging_plan.copies_folder(staging_plan.load_plan(home))
    copies.mkdir(parents=True)
    (copies / name).write_text(text)

    for act in (_apply, apply_copies.undo_plan):
        with pytest.raises(EnvironmentFaultError, match=r"did not make|contains /another/folder, not "):
            act(home)
    assert [path.name for path in copies.iterdir()] == [name]
