from __future__ import annotations

import copy
from dataclasses import replace

import pytest

from campaign.cells.cell import NEUTRAL, flat, make_cell
from campaign.config import limits
from campaign.errors import UsageError
from jobs.benchmarks import registry
from jobs.settings import EVERY
from tests.campaign.work_lists import BUFFERED, DIRECT, compose


def _with(point, key, value):
    changed = copy.deepcopy(point)
    *path, last = key.split(".")
    node = changed
    for part in path:
        node = node[part]
    node[last] = value
    return changed


_OTHER = {True: False, False: True, None: 7, "cold": "warm", "data": "/elsewhere"}


KINDS = [
    (), ("benchmark=alexnet",), DIRECT, BUFFERED, ("benchmark=baseline",),
    ("benchmark=baseline", "benchmark.access=random_read"), ("dataset=folder", "dataset.path=/a"),
    ("nodes=2",), ("benchmark=climate", "dataset=climate_smoke"),
]  # fmt: skip


@pytest.mark.parametrize("words", KINDS)
def test_every_setting_changes_the_id(words):
    point = compose(*words)
    base = make_cell(point).id

    for key, value in flat(make_cell(point).settings):
        if key == "benchmark.name":
            continue
        other = [1] if isinstance(value, list) else _OTHER.get(value, f"{value}x" if isinstance(value, str) else None)
        changed = _with(point, key, value + 1 if other is None else other)
        assert make_cell(changed).id != base, key


def test_no_key_of_the_conduct_changes_the_id(point):
    base = make_cell(point).id

    for key in point.keys() - set(EVERY):
        assert make_cell({**point, key: "something else"}).id == base, key


def test_a_setting_that_has_its_neutral_value_orphans_no_record(point):
    """A record made before the setting existed is found by the id that has it at its neutral value."""
    for key in NEUTRAL:
        changed = _with(point, key, NEUTRAL[key])
        before = copy.deepcopy(changed)
        *path, last = key.split(".")
        node = before
        for part in path:
            node = node[part]
        if not path:
            continue  # a top-level key is named in EVERY; a missing one is refused before
        del node[last]
        assert make_cell(before).id == make_cell(changed).id, key


def test_the_ids_of_the_first_release_stand_for_ever(point):
    assert make_cell(point).id == "micro-demo-local-t4-b64-p0-399c345604"
    assert make_cell({**point, "threads": 8}).id == "micro-demo-local-t8-b64-p0-ab09a915f5"
    assert make_cell({**point, "threads": 3, "batch_size": 5, "prefetch": 7}).id.startswith(
        "micro-demo-local-t3-b5-p7-"
    )


@pytest.mark.shows("nodes")
def test_a_cell_of_several_nodes_is_another_one_and_on_one_node_nothing_is_synchronised(point):
    one = make_cell(point).id
    ids = {make_cell({**point, "nodes": nodes, "sync": sync}).id for nodes in (2, 4) for sync in ("none", "barrier")}

    assert make_cell({**point, "sync": "allreduce"}).id == one
    assert len(ids | {one}) == 5
    assert all("-n2-" in each or "-n4-" in each for each in ids)


@pytest.mark.shows("profile.posix")
def test_a_cell_that_is_profiled_is_another_one_and_others_are_what_they_were(point):
    modes = ("none", "counters", "trace")
    profiled = {mode: make_cell({**point, "profile": {"posix": mode, "compare": True}}) for mode in modes}

    assert profiled["none"] == make_cell({key: value for key, value in point.items() if key != "profile"})
    assert len({cell.id for cell in profiled.values()}) == 3
    assert profiled["trace"].settings["profile"] == {"posix": "trace"}
    divided = make_cell({**point, "profile": {"posix": "trace", "every": 5, "compare": False}})
    assert divided.settings["profile"] == {"posix": "trace", "every": 5}
    assert divided.id not in {cell.id for cell in profiled.values()}


def test_adam_stays_unnamed_as_before_there_was_another_optimizer(point):
    adam, sgd = (make_cell({**compose("benchmark=alexnet", f"benchmark.optimizer={name}")}) for name in ("adam", "sgd"))

    assert "optimizer" not in adam.settings["benchmark"]
    assert sgd.settings["benchmark"]["optimizer"] == "sgd"
    assert adam.id != sgd.id


@pytest.mark.shows("profile.tensorflow")
def test_a_cell_whose_tensorflow_is_profiled_is_another_one_and_others_are_what_they_were(point):
    profiled = [make_cell({**point, "profile": {**point["profile"], "tensorflow": each}}) for each in ("none", "5-15")]

    assert profiled[0].id == make_cell(point).id == "micro-demo-local-t4-b64-p0-399c345604"
    assert profiled[1].id != profiled[0].id
    assert profiled[1].settings["profile"] == {"posix": "none", "tensorflow": "5-15"}


@pytest.mark.parametrize("steps", ["5", "0-3", "9-3", "some"])
def test_a_window_that_is_none_is_refused(steps):
    with pytest.raises(UsageError, match="no window of steps"):
        limits.check(compose(f"profile.tensorflow={steps}"))


@pytest.mark.shows("staging")
def test_a_cell_that_reads_copies_is_another_one_and_others_are_what_they_were(point):
    staged = {rule: make_cell({**point, "staging": rule}) for rule in ("none", "smallest", "advised")}

    assert staged["none"] == make_cell({key: value for key, value in point.items() if key != "staging"})
    assert len({cell.id for cell in staged.values()}) == 3
    assert staged["advised"].id.startswith("micro-demo-local-advised-t4")


def test_a_new_version_of_the_benchmark_makes_a_new_cell(point, monkeypatch):
    before = make_cell(point)
    micro = registry.benchmarks()["micro"]
    monkeypatch.setitem(registry.benchmarks(), "micro", replace(micro, version=micro.version + 1))

    assert make_cell(point).id != before.id


def test_the_same_folder_is_the_same_dataset_from_wherever_it_is_named(point, tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    point["dataset"] = {"name": "folder", "path": str(tmp_path / "images")}
    absolute = make_cell(point)
    monkeypatch.chdir(tmp_path)
    point["dataset"] = {"name": "folder", "path": "images"}

    assert make_cell(point).id == absolute.id


def test_how_jobs_are_kept_apart_on_a_storage_is_no_part_of_what_a_cell_is(point):
    access = {"shared": False, "exclusive": "license", "license": "lustre:1"}

    one, other = make_cell(point), make_cell({**point, "storage": {**point["storage"], **access}})

    assert one == other
    assert (one.access, other.access) == ({"shared": True, "exclusive": "lock", "license": None}, access)
    assert other.settings["storage"].keys() == {"name", "root", "stripe_count", "stripe_size_mib"}


def test_every_neutral_value_belongs_to_a_setting_that_exists():
    settings = {key for words in KINDS for key, _ in flat(make_cell(compose(*words)).settings)}

    assert NEUTRAL.keys() <= settings
