"""What keeps the runs of a cell from being continued here."""

import pytest

from campaign.storage import provenance

DISK = {"source": "/dev/sda", "fstype": "ext4", "options": "rw", "fsid": "76", "device": "8:0"}
TWIN = {"storage": {"name": "hdd", "read_mb_per_s": 163.0}}
HERE = {
    "host": "n1", "cpu": "Xeon", "cores": 2, "kernel": "6", "versions": {"tensorflow": "2.21"}, "emulated": {},
    "filesystem": DISK, "target_filesystems": [DISK], "engine": "fio",
}  # fmt: skip
STORAGE = "a storage that is another now"


def _difference(before, now, *, shared=True):
    recorded = {"dataset": {}, "provenance": before}
    return provenance.difference(recorded, {}, now, shared=shared)


@pytest.mark.parametrize(
    ("key", "now", "what"),
    [
        *((key, value, "another machine") for key, value in {"cpu": "Z80", "cores": 512, "kernel": "2.4"}.items()),
        ("target_filesystems", [DISK, DISK], STORAGE),
        ("engine", "ior", "another engine"),
    ],
)
def test_a_difference_says_what_differs_and_how(key, now, what):
    assert _difference(HERE, HERE | {key: now}) == (what, key, HERE[key], now)
    assert _difference(HERE | {key: now}, HERE) == (what, key, now, HERE[key])
    assert _difference(HERE | {key: now}, HERE | {key: now}) is None


@pytest.mark.parametrize(
    ("part", "now"), {"source": "/dev/sdb", "fsid": "77", "device": "8:16", "options": "rw,sync"}.items()
)
def test_of_a_file_system_the_part_that_differs_is_said(part, now):
    other = {**DISK, part: now}

    assert _difference(HERE, HERE | {"filesystem": other}) == (STORAGE, f"filesystem.{part}", DISK[part], now)
    found = _difference(HERE, HERE | {"target_filesystems": [other]})
    assert found == (STORAGE, f"target_filesystems.0.{part}", DISK[part], now)


def test_other_software_is_a_difference():
    found = _difference(HERE, HERE | {"versions": {"tensorflow": "1.10"}})

    assert found == ("other software", "tensorflow", "2.21", "1.10")


def test_another_node_of_the_same_kind_is_one_only_where_the_storage_is_not_shared():
    assert _difference(HERE, HERE | {"host": "n2"}) is None
    assert _difference(HERE, HERE | {"host": "n2"}, shared=False) == ("another machine", "host", "n1", "n2")


def test_what_only_one_of_them_has_is_unset_in_the_other():
    found = _difference(HERE, HERE | {"emulated": TWIN})

    assert found == (STORAGE, "emulated.storage", "unset", TWIN["storage"])


@pytest.mark.parametrize(
    ("process", "now"), [({}, "1"), ({"MALLOC_ARENA_MAX": "2"}, "1")], ids=["one that was not set", "another value"]
)
def test_other_conditions_are_a_difference(process, now):
    before, after = ({"process": each, "machine": {}, "storages": {}} for each in (process, {"MALLOC_ARENA_MAX": now}))

    found = _difference(HERE | {"conditions": before}, HERE | {"conditions": after})

    key, was = "conditions.process.MALLOC_ARENA_MAX", process.get("MALLOC_ARENA_MAX", "unset")
    assert found == ("a machine under other conditions", key, was, now)


def test_a_twin_at_another_speed_is_another_storage():
    slower = {"storage": {**TWIN["storage"], "read_mb_per_s": 100.0}}

    found = _difference(HERE | {"emulated": TWIN}, HERE | {"emulated": slower})

    assert found == (STORAGE, "emulated.storage.read_mb_per_s", 163.0, 100.0)


@pytest.mark.parametrize("key", ["emulated", "filesystem", "target_filesystems", "engine"])
def test_a_record_of_before_a_fact_was_recorded_can_be_continued(key):
    before = {name: value for name, value in HERE.items() if name != key}

    assert _difference(before, HERE) is None
