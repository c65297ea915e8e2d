"""Storages of two names on one device are told, for nothing that differs between them is theirs."""

import pytest

from analysis.claims import chien2018
from analysis.records.frame import rows_of
from analysis.records.record import device_of, sentences_on_shared_devices
from tests.analysis.claims_factory import told
from tests.analysis.record_factory import record
from tests.analysis.saving_factory import saved
from tests.analysis.training_factory import table_of


def on(storage, device="sda", **more):
    return record([100.0] * 3, storage=storage, device=device, **more)


SIDES = {"sources": {"fast": "dsk/vda", "slow": "dsk/loop0"}, "below": {"slow": ["dsk/vda"]}, "device": "vda"}
EMULATED = saved("nvme to s3", [150.0], **SIDES)
EMULATED["provenance"]["emulated"] = {"checkpoint.slow": {"name": "hdd"}}


@pytest.mark.parametrize(
    ("made", "one"),
    [
        ([on("hdd"), on("ssd")], "hdd, ssd are one device, dsk/sda"), ([on("hdd"), on("ssd", "sdb")], ""),
        ([on("hdd"), on("ssd", host="node2")], ""), ([on("hdd"), on("hdd", threads=1)], ""),
        ([saved("hdd", [150.0], sources={"only": "dsk/sda"}, device="sda")], "ssd, hdd are one device, dsk/sda"),
        # What an image lies on is told with the others on that, unless it is there to be emulated.
        ([saved("nvme to s3", [150.0], **SIDES)], "ssd, s3, nvme are one device, dsk/vda"),
        ([EMULATED], "ssd, nvme are one device, dsk/vda"),
    ],
)  # fmt: skip
def test_storages_of_one_device_of_one_host_are_told(made, one):
    (found,) = sentences_on_shared_devices(rows_of(table_of(*made))) or [""]

    assert sorted(found.replace(",", "").split()) == sorted(one.replace(",", "").split())


def test_cells_without_a_device_are_on_none():
    assert (
        sentences_on_shared_devices([{"host": "a", "storage_name": name, "device": ""} for name in ("hdd", "ssd")])
        == []
    )


@pytest.mark.parametrize(("fast", "verdict"), [("dsk/nvme0n1", "holds"), ("dsk/sda", "not comparable")])
def test_the_gain_of_a_burst_buffer_whose_sides_are_one_device_is_not_comparable(fast, verdict):
    alone = saved("hdd", [150.0] * 3, (5.3, 5.3, 5.3), {"only": "dsk/sda"})
    buffered = saved("optane to hdd", [140.0] * 3, (1.4, 1.4, 9.0), {"fast": fast, "slow": "dsk/sda"})

    assert told(chien2018.GAIN, alone, buffered)["verdict"] == verdict


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
