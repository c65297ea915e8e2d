"""What keeps the runs of a cell from being continued here, and what of a machine they share."""

from pathlib import Path

import pytest

from campaign.cells.cell import make_cell
from campaign.storage import provenance
from jobs.system.device import filesystem_of
from tests.campaign.work_lists import BUFFERED, compose

DISK = {"source": "/dev/sda", "fstype": "ext4", "options": "rw", "fsid": "76", "device": "8:0"}
TWIN = {"storage": {"name": "hdd", "read_mb_per_s": 163.0}}
HERE = {
    "host": "n1", "cpu": "Xeon", "cores": 2, "kernel": "6", "versions": {"tensorflow": "2.21"}, "emulated": TWIN,
    "filesystem": DISK, "target_filesystems": [DISK], "engine": "fio",
    "conditions": {"process": {"MALLOC_ARENA_MAX": "2"}, "machine": {}},
}  # fmt: skip
STORAGE, CONDITIONS = "another storage", "a machine under other conditions"


def _difference(before, now, *, shared=True):
    recorded = {"dataset": {}, "provenance": before}
    return provenance.provenance_difference(recorded, {}, now, shared=shared)


@pytest.mark.parametrize(
    ("other", "what", "part", "was", "now"),
    [
        *(
            ({key: value}, "another machine", key, HERE[key], value)
            for key, value in {"cpu": "Z80", "cores": 512, "kernel": "2.4"}.items()
        ),
        *(
            ({"filesystem": {**DISK, part: value}}, STORAGE, f"filesystem.{part}", DISK[part], value)
            for part, value in {"source": "/dev/sdb", "fsid": "77", "device": "8:16", "options": "rw,sync"}.items()
        ),
        ({"target_filesystems": [{**DISK, "fsid": "77"}]}, STORAGE, "target_filesystems.0.fsid", "76", "77"),
        ({"target_filesystems": [DISK, DISK]}, STORAGE, "target_filesystems", [DISK], [DISK, DISK]),
        ({"engine": "ior"}, "another engine", "engine", "fio", "ior"),
        ({"versions": {"tensorflow": "1.10"}}, "other software", "tensorflow", "2.21", "1.10"),
        ({"emulated": {}}, STORAGE, "emulated.storage", TWIN["storage"], "unset"),
        ({"emulated": {"storage": {"name": "hdd", "read_mb_per_s": 9.0}}}, STORAGE, "emulated.storage.read_mb_per_s",
         163.0, 9.0),
        ({"conditions": {"process": {}, "machine": {}}}, CONDITIONS, "conditions.process.MALLOC_ARENA_MAX", "2",
         "unset"),
    ],
)  # fmt: skip
def test_a_difference_says_what_differs_and_how(other, what, part, was, now):
    assert _difference(HERE, HERE | other) == (what, part, was, now)
    assert _difference(HERE | other, HERE) == (what, part, now, was)
    assert _difference(HERE | other, HERE | other) is None


def test_another_node_of_the_same_kind_is_one_only_where_the_storage_is_not_shared():
    assert _difference(HERE, HERE | {"host": "n2"}) is None
    assert _difference(HERE, HERE | {"host": "n2"}, shared=False) == ("another machine", "host", "n1", "n2")


@pytest.mark.parametrize("key", ["emulated", "filesystem", "target_filesystems", "engine"])
def test_a_record_of_before_a_fact_was_recorded_can_be_continued(key):
    before = {name: value for name, value in HERE.items() if name != key}

    assert _difference(before, HERE) is None


def test_what_the_runs_of_a_cell_share_is_read_where_they_read_and_save(tmp_path):
    settings, targets = make_cell(compose(*BUFFERED)).settings, [str(tmp_path), "https://h/b"]

    found = provenance.node_provenance(settings, str(tmp_path), targets, "/")
    elsewhere = provenance.node_provenance(settings, str(tmp_path / "gone"), targets)

    assert found["filesystem"] == filesystem_of(tmp_path)
    bucket = {"source": "https://h/b", "fstype": "s3"}
    assert found["target_filesystems"] == [filesystem_of(tmp_path), bucket, filesystem_of(Path("/"))]
    assert found["conditions"].keys() >= {"process", "machine"}
    assert found["emulated"] == {}
    assert "filesystem" not in elsewhere  # of this node, which lacks it
    assert "engine" not in found
