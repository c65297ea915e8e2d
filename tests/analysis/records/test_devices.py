"""Storages of two names on one device are told, for nothing that differs between them is theirs."""

import pytest

from analysis.__main__ import main
from analysis.records.devices import device_of, one_device
from tests.analysis.record_factory import record, store
from tests.analysis.saving_factory import saved

pytestmark = pytest.mark.usefixtures("unrendered")


@pytest.mark.parametrize(
    ("other", "host", "told"),
    [("sda", "node1", True), ("sdb", "node1", False), ("sda", "node2", False)],
)
def test_a_report_says_which_storages_are_one_device(tmp_path, capsys, other, host, told):
    places = (("hdd", "node1", "sda"), ("ssd", host, other))
    folder = store(tmp_path, *(record([100.0] * 3, storage=name, host=at, device=on) for name, at, on in places))

    main([str(folder)])

    words = "hdd, ssd are one device, dsk/sda: what differs between them is not the storage"
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
    ("device", "source", "named"),
    [
        ({"name": "sda"}, "/dev/sda1", "dsk/sda"),
        ("unknown", "10.0.0.1@tcp:/scratch", "10.0.0.1@tcp:/scratch"),
        (None, "tmpfs", ""),
        (None, None, ""),
    ],
)
def test_a_device_is_its_counter_or_what_is_mounted_but_no_word_that_many_mounts_share(device, source, named):
    assert device_of({"device": device, "mount": {"source": source}}) == named
    assert device_of({"device": device, "mount": "unknown"}) == (named if named.startswith("dsk/") else "")


def test_a_storage_and_a_target_of_another_name_on_its_device_are_told(tmp_path):
    folder = store(tmp_path, saved("hdd", [150.0] * 3, sources={"only": "dsk/sda"}, device="sda"))

    main([str(folder), "--quiet"])

    assert "ssd, hdd are one device, dsk/sda" in (folder / "report.html").read_text()


@pytest.mark.parametrize(("emulated", "told"), [(False, True), (True, False)])
def test_a_storage_whose_image_lies_on_the_device_of_others_is_told_with_them_unless_it_is_emulated(
    tmp_path, emulated, told
):
    sources = {"fast": "dsk/vda", "slow": "dsk/loop0"}
    made = saved("nvme to s3", [150.0] * 3, sources=sources, below={"slow": ["dsk/vda"]}, device="vda")
    if emulated:
        made["provenance"]["emulated"] = {"checkpoint.slow": {"name": "hdd"}}
    folder = store(tmp_path, made)

    main([str(folder), "--quiet"])

    said = (folder / "report.html").read_text()
    assert ("ssd, nvme, s3 are one device, dsk/vda" in said) is told
    assert ("ssd, nvme are one device, dsk/vda" in said) is not told


def test_a_cell_without_a_device_is_on_none():
    assert one_device([{"host": "a", "storage_name": name, "device": ""} for name in ("hdd", "ssd")]) == []
