"""What `testbed up` may be asked for; each key changes what is made."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from campaign.__main__ import run_guarded
from campaign.cli import testbed as verb
from campaign.config import testbed_words
from campaign.config.testbed_words import requested_storages, requested_store
from campaign.errors import UsageError
from campaign.testbed import ceph
from campaign.testbed.s3 import StoreRequest
from campaign.testbed.spec import GB, KINDS, Speed
from campaign.testbed.state import LoopDevice
from jobs.objects.client import BucketSpace
from tests.campaign.testbed.testbeds import BED, HDD, SSD, bed_state, limited, up_and_running

# Chien et al. 2018, Table I: MB/s read and written.
TABLE_I = {"hdd": (163.00, 133.14), "ssd": (280.55, 195.05), "optane": (1603.06, 511.78), "lustre": (1968.618, 991.914)}
EFFECTS = {
    "size_gb": ("3", lambda wanted: wanted.size_bytes == 3 * GB),
    "read_mb_per_s": ("100", lambda wanted: wanted.speed.limits()["read_bps"] == 100_000_000),
    "write_mb_per_s": ("0.5", lambda wanted: wanted.speed.limits()["write_bps"] == 500_000),
    "read_iops": ("80", lambda wanted: wanted.speed.limits()["read_iops"] == 80),
    "write_iops": ("70", lambda wanted: wanted.speed.limits()["write_iops"] == 70),
}


@pytest.fixture(scope="module")
def usual():
    return requested_storages([])


def test_unasked_all_storages_have_the_figures_of_the_paper(usual):
    speeds = {name: (each.speed.read_mb_per_s, each.speed.write_mb_per_s) for name, each in usual.items()}
    assert speeds == TABLE_I
    assert {each.size_bytes for each in usual.values()} == {None}
    assert all(each.speed.limits().keys() == {"read_bps", "write_bps"} for each in usual.values())


@pytest.mark.parametrize("name", KINDS)
def test_each_key_changes_its_storage_and_no_other(name, usual):
    keys = KINDS[name].__struct_fields__
    values = {key: EFFECTS[key][0] if key in EFFECTS else str(place) for place, key in enumerate(keys, start=2)}

    found = requested_storages([f"{name}.{key}={value}" for key, value in values.items()])

    for key, value in values.items():
        assert EFFECTS[key][1](found[name]) if key in EFFECTS else f"{key}={value}" in found[name].server_arguments(), (
            key
        )
    assert [other for other in found if found[other] != usual[other]] == [name]


def test_only_the_storages_that_are_asked_for_are_made_each_once():
    assert list(requested_storages(["storages=[ssd,hdd,ssd]"])) == ["ssd", "hdd"]


def test_emulated_nodes_come_alone_and_each_is_bounded_or_beside_the_storages_that_are_named():
    found = requested_storages(["nodes=2", "node.size_gb=1", "node.read_mb_per_s=60"])

    assert list(found) == ["node0", "node1"]
    assert {(each.node, each.size_bytes, each.speed) for each in found.values()} == {(True, GB, Speed(60, None))}
    assert list(requested_storages(["nodes=1", "storages=[ssd]"])) == ["ssd", "node0"]
    assert requested_storages(["nodes=1"])["node0"].speed == Speed(185, None)


def test_null_is_no_bound():
    (hdd,) = requested_storages(["storages=[hdd]", "hdd.read_mb_per_s=null", "hdd.write_mb_per_s=null"]).values()

    assert hdd.speed.limits() == {}


@pytest.mark.parametrize(
    ("word", "error"),
    [
        ("hdd.reed_mb_per_s=100", "unknown key 'hdd.reed_mb_per_s'"),
        ("hdd.size=1", "unknown key 'hdd.size'"),
        ("+hdd.seek_ms=8", "unknown key 'hdd.seek_ms'"),
        ("+nvme.size_gb=3", "unknown key 'nvme"),
        ("~hdd.size_gb", "'hdd.size_gb'"),
        ("~ssd", "ssd is missing"),
        ("hdd.size_gb=0.01", "hdd.size_gb=0.01 is out of range"),
        ("hdd.size_gb=-3", "hdd.size_gb=-3 is out of range"),
        ("hdd.read_mb_per_s=0", "hdd.read_mb_per_s=0 is out of range"),
        ("ssd.write_mb_per_s=nan", "ssd.write_mb_per_s=nan is out of range"),
        ("ssd.read_iops=0", "ssd.read_iops=0 is out of range"),
        ("ssd.write_iops=much", "ssd.write_iops"),
        ("storages=[floppy]", "there is no 'floppy'"),
        ("storages=[]", "names no storage"),
        ("nodes=65", "nodes=65 is out of range"),
        ("node.read_mb_per_s=0", "node.read_mb_per_s=0 is out of range"),
        ("hdd.size_gb=3,4", "."),
        ("hdd", "neither a verb nor KEY=VALUE"),
    ],
)
def test_a_word_that_cannot_be_meant_is_refused_with_a_cure(word, error):
    with pytest.raises(UsageError, match=error) as caught:
        requested_storages([word])

    assert caught.value.hint
    assert "+hdd" not in caught.value.hint  # that is for groups without a default


@pytest.mark.parametrize(
    ("word", "legal"),
    [
        ("hdd.read_iops=-1", "legal: 1 to 100,000,000 1/s, or null"),
        ("node.size_gb=0", "legal: 0.06 to 1,000,000 GB, or null"),
        ("hdd.queue=0", "legal: 1 to 1,024 commands"),
        ("nodes=65", "legal: 0 to 64 nodes"),
    ],
)
def test_null_is_named_as_legal_where_a_key_may_have_it(word, legal):
    with pytest.raises(UsageError) as caught:
        requested_storages([word])

    assert caught.value.hint == legal


def test_an_object_store_is_made_where_it_is_asked_for_and_it_may_be_all():
    words = ["s3=true", "s3_on=ssd", "s3_size_gb=2", "s3_cached=true"]

    assert requested_store([]) is None
    assert requested_store(["s3=true"]) == StoreRequest(None, 6 * GB, cached=False)
    assert requested_store(words) == StoreRequest("ssd", 2 * GB, cached=True)
    assert requested_storages(["s3=true"]) == {}
    assert list(requested_storages(["storages=[ssd]", *words])) == ["ssd"]


@pytest.mark.parametrize("word", ["s3_on=sdd", "s3_size_gb=0.5", "s3=perhaps"])
def test_an_object_store_that_cannot_be_meant_is_refused_with_a_cure(word):
    with pytest.raises(UsageError) as caught:
        requested_store(["s3=true", word])

    assert caught.value.hint


@given(st.floats(0.1, 1e6))
def test_any_speed_in_range_reaches_the_kernel_in_whole_bytes(mb_per_s):
    limits = Speed(mb_per_s, None).limits()

    assert limits.keys() == {"read_bps"}
    assert abs(limits["read_bps"] - mb_per_s * 1e6) <= 0.5


@pytest.mark.parametrize("lacks", [None, "fuse", "cc"])
def test_a_model_is_taken_where_it_can_be_served(lacks, monkeypatch):
    monkeypatch.setattr(testbed_words, "_FUSE", Path("/dev/null" if lacks != "fuse" else "/dev/none"))
    monkeypatch.setattr(testbed_words.shutil, "which", lambda _: None if lacks == "cc" else "/usr/bin/cc")

    assert requested_storages(["model=rates"])["hdd"].model is None
    assert (requested_storages([])["hdd"].model is None) == bool(lacks)
    if lacks:
        with pytest.raises(UsageError, match=f"(?i)model=physical needs .*{lacks}"):
            requested_storages(["model=physical"])
    else:
        assert requested_storages(["model=physical", "hdd.rpm=5400"])["hdd"].model.parameters["rpm"] == 5400


@pytest.mark.parametrize(("used", "warned"), [(1_000_000_000, False), (4_900_000_000, True), (None, False)])
def test_the_state_says_how_full_the_bucket_is_and_what_to_do_then(used, warned, tmp_path, monkeypatch, capsys):
    room = None if used is None else BucketSpace(used, 5_100_000_000)
    facts = {"port": 1, "disk": str(tmp_path), "size_bytes": 6_000_000_000, "loop": False, "made": True}
    (tmp_path / "s3").mkdir()
    (tmp_path / "s3/gateway.json").write_text(json.dumps(facts))
    monkeypatch.setattr(ceph.Ceph, "answers", lambda *_: True)
    monkeypatch.setattr(ceph.Ceph, "bucket_space", lambda _: room)

    assert run_guarded(["testbed", "status", "--folder", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert run_guarded(["testbed", "status", "--json", "--folder", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)["s3"]

    assert "s3 is up: http://127.0.0.1:1, bucket campaign, 6 GB on " in said.out
    assert f", 6 GB on {tmp_path}" + (f", {room}\n" if room else "\n") in said.out
    assert ("s3 is nearly full: remove objects" in said.err) is warned
    assert (told["used_bytes"], told["quota_bytes"]) == (used, room and 5_100_000_000)


def test_the_table_of_storages_says_what_was_found_of_each(monkeypatch, capsys):
    small = up_and_running("ssd", LoopDevice("/dev/loop1", "7:1"), SSD, size_bytes=6 * GB - 1)
    hdd = up_and_running("hdd", LoopDevice("/dev/loop0", "7:0"), HDD, size_bytes=6 * GB)
    found = bed_state(
        {"hdd": hdd, "ssd": small}, numbers=["7:0", "7:1"], device_limits=limited(("7:0", HDD), ("7:1", SSD))
    )
    monkeypatch.setattr(verb, "inspect_testbed", lambda _: found)

    assert run_guarded(["testbed", "status", "--folder", str(BED)]) == 0

    said = capsys.readouterr()
    head, *rows, beneath = said.out.splitlines()
    assert [re.split(r"  +", row.strip()) for row in (head, *rows)] == [
        ["emulated", "state", "GB", "model", "MB/s read", "MB/s written", "reads/s", "writes/s", "device", "root"],
        ["hdd", "up", "6", "rates", "163", "133.14", "-", "-", "/dev/loop0", "/bed/hdd/data"],
        ["ssd", "up", "6", "rates", "280.55", "195.05", "-", "-", "/dev/loop1", "/bed/ssd/data"],
    ]
    assert "100.0 GB free" in beneath
    assert said.err.strip() == "warning: the baseline's file of 5 GB does not fit on ssd"


def test_a_preview_of_down_says_what_would_be_ended_and_that_nothing_was_done(tmp_path, monkeypatch, capsys):
    assert run_guarded(["testbed", "down", "--dry-run", "--folder", str(tmp_path)]) == 0
    assert "nothing to do" in capsys.readouterr().err
    monkeypatch.setattr(verb.s3, "store_state", lambda _: {"state": "up"})

    assert run_guarded(["testbed", "down", "--dry-run", "--folder", str(tmp_path)]) == 0
    assert f"# end ceph-mon, ceph-osd and radosgw in {tmp_path}/s3" in capsys.readouterr().out


def test_down_deletes_no_file_of_a_user_without_a_yes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(verb.os, "geteuid", lambda: 0)
    point = tmp_path / "hdd"
    for name in ("datasets", "tfio-me", ".tfio-lock", "pics"):
        (point / "data" / name).mkdir(parents=True)
    loop = LoopDevice("/dev/loop3", "7:3")
    storage = dataclasses.replace(up_and_running("hdd", loop, HDD), point=point, empty=False)
    found = bed_state({"hdd": storage}, numbers={"hdd": "7:3"}, folder=tmp_path)
    removed = []
    monkeypatch.setattr(verb, "inspect_testbed", lambda *_: found)
    monkeypatch.setattr(verb.apply, "take_down", lambda _, keep: removed.append(keep) or found)

    codes = [
        run_guarded(["testbed", "down", "--folder", str(tmp_path), *flags]) for flags in ([], ["--keep"], ["--yes"])
    ]
    (point / "data" / "pics").rmdir()
    codes.append(run_guarded(["testbed", "down", "--folder", str(tmp_path)]))

    assert (codes, removed) == ([2, 0, 0, 0], [True, False, False])
    assert f"`down` would delete them: {point}/data/pics\n" in capsys.readouterr().err
