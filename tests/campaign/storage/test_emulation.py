"""Which storages of a cell are emulated, and what is said of them."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from campaign.cells.cell import make_cell
from campaign.storage import checkpoint_targets, emulation
from campaign.testbed import throttle
from jobs.system.device import Mount
from tests.campaign.work_lists import BUFFERED, DIRECT, compose

FACTS = {"name": "hdd", "read_mb_per_s": 163.0, "write_mb_per_s": None, "read_iops": 80, "write_iops": None}


@pytest.fixture
def twins(monkeypatch):
    """Everything below /twin is emulated."""
    monkeypatch.setattr(emulation, "emulated_storage", lambda path: FACTS if str(path).startswith("/twin") else None)


@pytest.mark.parametrize(
    ("words", "places", "found", "names"),
    [
        (BUFFERED, ["/twin/data", "/ssd", "/twin/hdd"], ["storage", "checkpoint.slow"], ["local", "hdd"]),
        (BUFFERED, ["/data", "/twin/optane", "/hdd"], ["checkpoint.fast"], ["optane"]),
        (DIRECT, ["/data", "/twin/hdd"], ["checkpoint"], ["local"]),
        (DIRECT, ["/data", "/hdd"], [], []),
    ],
)
def test_each_storage_of_a_cell_is_looked_at_where_it_is_used(words, places, found, names, twins):
    settings = make_cell(compose(*words)).settings

    emulated = emulation.emulated_storages(settings, places[0], places[1:])

    assert emulated == dict.fromkeys(found, FACTS)
    assert emulation.emulated_names(settings, {"emulated": emulated}) == names
    with pytest.raises(ValueError, match="shorter"):
        emulation.emulated_storages(settings, places[0], places[2:])


def test_before_anything_runs_each_emulated_storage_is_told_once(twins, point):
    points = [
        {**point, "storage": {**point["storage"], "root": "/twin/hdd", "name": "hdd"}, "threads": n} for n in (1, 2)
    ]

    assert emulation.emulation_notices(map(make_cell, [*points, point])) == [
        "hdd is emulated: at most 163 MB/s read, 80 reads/s"
    ]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (FACTS, "at most 163 MB/s read, 80 reads/s"),
        ({"name": "unknown"}, "at an unknown speed"),
        (dict.fromkeys(FACTS), "as fast as the underlying storage"),
        (FACTS | {"model": {"kind": "disk"}}, "at most 163 MB/s read, 80 reads/s, by a disk model"),
    ],
)
def test_the_bounds_are_told_in_words(facts, words):
    assert emulation.limits_in_words(facts) == words


LIMITS = {"read_bps": 163_000_000, "read_iops": 80}  # of FACTS
UNSEEN = throttle.CgroupV2Limits({}, hindrance=("no cgroup", "mount one"))


@pytest.mark.parametrize(
    ("facts", "limits", "refused"),
    [
        (FACTS, LIMITS, False),
        (FACTS, {}, True),
        (FACTS, {**LIMITS, "read_bps": 300_000_000}, True),
        (FACTS, None, False),  # bounds cannot be seen
        ({"name": "unknown"}, {}, False),
        (None, {}, False),
    ],
)
def test_an_emulated_storage_that_is_not_as_slow_as_it_says_is_refused(tmp_path, monkeypatch, facts, limits, refused):
    device = tmp_path.stat().st_dev
    found = throttle.CgroupV1Limits(tmp_path, {f"{os.major(device)}:{os.minor(device)}": limits})
    monkeypatch.setattr(throttle, "find_throttle", lambda: UNSEEN if limits is None else found)
    monkeypatch.setattr(emulation, "emulated_storage", lambda _: facts)

    told = emulation.missing_limits([str(tmp_path)])

    assert (told is not None) is refused
    speeds = "emulated hdd (at most 163 MB/s read, 80 reads/s)"
    assert not refused or f"{speeds}, and the kernel does not apply these limits" in told


@pytest.mark.parametrize("moved", ["data", "target"])
@pytest.mark.parametrize("changed", [{"point": "/"}, {"source": "/dev/vda"}])
def test_what_is_on_another_storage_than_at_the_first_run_is_told(moved, changed, monkeypatch):
    places = {name: f"/{name} of {moved} {changed}" for name in ("data", "target")}  # a worker looks once at each
    mounts = {place: Mount(place, f"/dev/{name}", "ext4", "") for name, place in places.items()}
    monkeypatch.setattr(checkpoint_targets, "mount_of", lambda path: mounts[str(path)])
    storage = {"root": places["data"], "node_root": None}
    item = {"dataset": {"path": places["data"]}, "targets": [places["target"]], "settings": {"storage": storage}}
    assert checkpoint_targets.moved_path_sentence(item) is None

    mounts[places[moved]] = replace(mounts[places[moved]], **changed)

    assert f"{places[moved]} was on /dev/{moved}" in checkpoint_targets.moved_path_sentence(item)


RPM = {"read_mb_per_s": 163, "write_mb_per_s": 1e6, "rpm": 7200}
SERVED = {"kind": "disk", "parameters": RPM, "faults": {"hang": 0}}
HDD = Path("/bed/hdd.model")


@pytest.mark.parametrize(
    ("marked", "model", "said", "why"),
    [
        (True, HDD, SERVED, None),
        (True, None, SERVED, "no model serves the storage"),
        (False, HDD, SERVED, "a model serves the storage"),
        (True, HDD, {**SERVED, "kind": "flash"}, "other parameters"),
        (True, HDD, {**SERVED, "parameters": {"rpm": 5400}}, "other parameters"),
        (True, HDD, {**SERVED, "faults": {"eio_every": 50}}, r"injects faults \(eio_every 50\)"),
        (True, HDD, {**SERVED, "faults": {"spike_every": 0, "spike_ms": 200}}, None),
        (True, HDD, {**SERVED, "faults": {"spike_every": 9, "spike_ms": 200}}, r"\(spike_every 9, spike_ms 200\)"),
        (True, HDD, None, "does not answer"),
    ],
)
def test_a_storage_is_refused_that_its_model_serves_otherwise_than_it_says(monkeypatch, marked, model, said, why):
    facts = {**FACTS, "read_iops": None, "model": {"kind": "disk", "rpm": 7200.0} if marked else None}

    def served(_):
        if said is None:
            raise TimeoutError
        return said

    monkeypatch.setattr(throttle, "find_throttle", lambda: UNSEEN)
    monkeypatch.setattr(emulation, "emulated_storage", lambda _: facts)
    monkeypatch.setattr(emulation, "model_behind", lambda _: model)
    monkeypatch.setattr(emulation, "ask_server", served)

    told = emulation.missing_limits(["/"])

    assert told is None if why is None else re.search(f"{why}: python -m campaign testbed up", told)
