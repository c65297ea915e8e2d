"""Copies are whole or not there, never over others' files, and go again."""

from pathlib import Path

import numpy as np
import pytest

from campaign.cells.cell import make_cell
from campaign.cells.verdicts import Verdicts
from campaign.errors import EnvironmentFaultError, UsageError
from campaign.staging import apply_copies, observed_runs, staging_plan
from campaign.staging.apply_copies import outcomes_of_cells, outcomes_of_profiles
from campaign.staging.staging_plan import RULES
from jobs.data import staged_paths
from jobs.events.posix_window import COUNTERS, Window
from jobs.store import transfer
from jobs.system.files import write_json
from tests.campaign.fake_template import TERMS
from tests.campaign.on_disk import leave_record
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


def test_what_was_copied_is_not_copied_again_and_what_a_kill_left_goes(home, monkeypatch):
    _apply(home)
    copies = staging_plan.copies_folder(staging_plan.load_plan(home))
    (copies / ".incoming").mkdir()
    copied, copy = [], transfer.copy_files
    monkeypatch.setattr(transfer, "copy_files", lambda *words: (copied.extend(words[2]), copy(*words)))

    _apply(home, "all")

    assert [name for name, _ in copied] == ["b/three.bin"]
    assert not (copies / ".incoming").exists()


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


def test_what_may_be_the_last_copy_stays(home, source):
    _apply(home, "all")
    copies = staging_plan.copies_folder(staging_plan.load_plan(home))
    (source / NAMES[0]).unlink()
    (copies / "b" / "mine.txt").write_text("mine")

    assert apply_copies.undo_plan(home) == (2, [copies / NAMES[0], copies / "b" / "mine.txt"])
    assert (copies / NAMES[0]).exists()


ANY = TERMS | {"min_valid_runs": 1}


def _plan(cell, **gains):
    found = plan_of("/data", "/fast", ["x"], **{rule: [] for rule in RULES if rule not in gains})
    for rule, gain in gains.items():
        found["rules"][rule]["gain"] = {"gain": gain, "low": 0.1, "high": 0.4}
    return found | {"origin": cell.id}


@pytest.fixture
def measured(point, folder):
    """A function: leave the record of the cell with these copies and these MB/s of the runs."""

    def leave(staging, *rates, status="done", **changed):
        cell = make_cell({**point, "profile": {"posix": "counters"}, "staging": staging, **changed})
        verdict = "invalid" if status == "invalid" else "valid"
        runs = ({"status": verdict, "profile": {"read_mb_per_s": rate}} for rate in rates)
        leave_record(folder, cell, *runs, status=status)
        return cell

    return leave


@pytest.mark.parametrize(
    ("rates", "holds"),
    [
        ((50, 48, 51), True),
        ((55.1, 1, 99), False),
        ((54.9, 2, 98), True),
        ((45.1, 9, 60), True),
        ((44.9, 7, 61), False),
    ],
)
def test_a_prediction_holds_within_a_tenth_of_the_bandwidth(rates, holds, measured, folder):
    cell = measured("none", 40, 31, 42)
    measured("advised", *rates)
    measured("advised", 900, threads=7)  # another cell
    measured("smallest", 50, status="invalid")  # of one run that a neighbour left nothing is told

    found = outcomes_of_cells(Verdicts(folder, ANY), _plan(cell, advised=0.25, smallest=0.2))

    assert list(found) == ["advised"]
    gains = (found["advised"].measured, found["advised"].low, found["advised"].high)
    assert gains == pytest.approx((np.median(rates) / 40 - 1, min(rates) / 42 - 1, max(rates) / 31 - 1))
    assert found["advised"].holds is holds


def test_where_nothing_was_read_there_is_nothing_to_hold_it_against(measured, folder):
    cell = measured("none", 40, 0)

    with pytest.raises(UsageError, match="no cell is done"):
        outcomes_of_cells(Verdicts(folder, ANY), _plan(cell, advised=0.25))
    with pytest.raises(UsageError, match="has no cell x"):
        outcomes_of_cells(Verdicts(folder, ANY), {**_plan(cell), "origin": "x"})
    measured("advised", 50, 0)
    measured("all", 0)
    (found,) = outcomes_of_cells(Verdicts(folder, ANY), _plan(cell, advised=0.25, all=0.25)).values()
    assert found.low == pytest.approx(50 / 40 - 1)
    with pytest.raises(UsageError, match="no cell is done"):
        outcomes_of_cells(Verdicts(folder, ANY), _plan(cell, all=0.25))


@pytest.fixture
def hold(tmp_path, monkeypatch):
    """A function: hold a profile of 1.5 s that read so many bytes of the plan's 6 MB, as much of them from the device.

    Half of them are of the copies with these names, half of an original.
    """
    for rule, names in (("advised", "ab"), ("all", "abc")):
        found = {"schema": 1, "source": "/data", "copies": "/fast/c", "root": "/fast"}
        write_json(tmp_path / f"{rule}.json", found | {"files": [[name, 1, 1] for name in names]})
    plan = plan_of("/data", "/fast", "abcd") | {"read_bytes": 6e6, "mb_per_s": 2.0, "origin": "a.npz"}

    def outcome(read, device=None, copied="ab"):
        counters = np.zeros(len(copied) + 2, COUNTERS)
        counters["bytes_read"] = [read // 2 - len(copied) + 1, *[1] * (len(copied) - 1), read - read // 2, 9_000_000]
        paths = [*(f"/fast/c/{name}" for name in copied), "/data/d", "/lib/x"]
        window = Window("counters", 0, 1_500_000_000, 1, paths, ["POSIX"] * len(paths), counters, None, 0, 0, 0)
        object.__setattr__(window, "device_bytes", device)
        monkeypatch.setattr(observed_runs, "read_complete_window", lambda _: window)
        monkeypatch.setattr(observed_runs, "has_device", lambda _: True)
        return outcomes_of_profiles(tmp_path, plan, [tmp_path / "b.npz"])

    return outcome


@pytest.mark.parametrize(
    ("words", "rate"),
    [
        *(((6_000_000, device, "ab"), 4.0) for device in (None, 5_400_000, 6_000_000)),
        ((5_940_000, None, "abc"), 3.96), ((6_060_000, None, "abc"), 4.04),
    ],
)  # fmt: skip
def test_a_profile_of_the_copies_of_a_rule_tells_what_it_has_gained(words, rate, hold):
    ((rule, found),) = hold(*words).items()

    assert rule == {"ab": "advised", "abc": "all"}[words[2]]
    assert (found.measured, found.predicted["gain"]) == (pytest.approx(rate / 2.0 - 1), 0.2)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((5_939_999,), r"b\.npz has read 5\.9 MB of the plan's files, but a\.npz has read 6\.0 MB"),
        ((6_060_001,), r"has read 6\.1 MB of the plan's files"),
        ((6_000_000, 5_399_999), r"at least 0\.6 of 6\.0 MB came from memory"),
        ((6_000_000, None, "a"), "has read 1 copies, but no applied rule"),
    ],
)
def test_a_profile_of_other_reads_or_from_memory_is_refused(words, why, hold):
    with pytest.raises(UsageError, match=why):
        hold(*words)
