"""Storages of two names on one device are told, for nothing that differs between them is theirs."""

from __future__ import annotations

import pytest
from record_factory import record, store
from saving_factory import saved

from analysis.__main__ import main
from analysis.sharing import device_of, one_device


def on(device, made):
    made["provenance"]["mount"]["source"] = device
    return made


@pytest.mark.parametrize(
    ("other", "host", "told"),
    [("/dev/sda", "node1", True), ("/dev/sdb", "node1", False), ("/dev/sda", "node2", False)],
)
def test_a_report_says_which_storages_are_one_device(tmp_path, capsys, other, host, told):
    hdd, ssd = (record([100.0] * 3, storage=name, host=at) for name, at in (("hdd", "node1"), ("ssd", host)))
    folder = store(tmp_path, on("/dev/sda", hdd), on(other, ssd))

    main([str(folder)])

    words = "hdd, ssd are one device, /dev/sda: what differs between them is not the storage"
    assert (words in " ".join(capsys.readouterr().out.split())) is told
    assert (words in (folder / "report.html").read_text()) is told


@pytest.mark.parametrize(("fast", "holds"), [("dsk/nvme0n1", True), ("dsk/sda", False)])
def test_the_gain_of_a_burst_buffer_whose_sides_are_one_device_is_not_comparable(tmp_path, fast, holds):
    alone = saved("hdd", [150.0] * 3, (5.3, 5.3, 5.3), {"only": "dsk/sda"})
    buffered = saved("optane to hdd", [140.0] * 3, (1.4, 1.4, 9.0), {"fast": fast, "slow": "dsk/sda"})
    folder = store(tmp_path, alone, buffered)

    main([str(folder), "--quiet"])

    (row,) = [line for line in (folder / "tables/verdicts.md").read_text().splitlines() if "2.6 times" in line]
    assert ("| holds |" in row) is holds
    assert ("not comparable" in row and "are one device, dsk/sda" in row) is not holds


@pytest.mark.parametrize(
    ("source", "device"),
    [("/dev/sda1", "/dev/sda1"), ("10.0.0.1@tcp:/scratch", "10.0.0.1@tcp:/scratch"), ("tmpfs", ""), ("", "")],
)
def test_a_word_that_many_mounts_share_names_no_device(source, device):
    assert device_of(source) == device


def test_a_cell_without_a_device_is_on_none():
    assert one_device([{"host": "a", "storage_name": name, "device": ""} for name in ("hdd", "ssd")]) == []
