"""`testbed check`: what is asked for, what fio answers, the table, the refusals; and one storage that is measured."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from campaign.cli import testbed
from campaign.errors import EnvironmentFaultError
from campaign.testbed import apply, check
from campaign.testbed.check import CheckedStorage, CheckRow, RequestKind
from campaign.testbed.spec import DATA, Model, Speed, StorageRequest
from campaign.testbed.state import StorageState
from jobs.errors import EngineError
from jobs.system import files
from tests.campaign.testbed.testbeds import HDD, required

FLASH = Model("flash", {"path_us": 30, "read_us": 100, "write_us": 50, "channels": 8})
SSD = StorageRequest(Speed(409.6, 195.05), model=FLASH)  # 4 kB are 10 us on the bus
READ, WRITE, ONE, MANY = (
    RequestKind("read"),
    RequestKind("write"),
    RequestKind("random_read", 4096, 1),
    RequestKind("random_read", 4096, 32),
)
SERVED = dict.fromkeys(("reads", "writes", "late_s", "queue_s", "busy_s"), 0)


def target(request=SSD):
    return CheckedStorage(
        "ssd", StorageState(Path("/bed/ssd.img"), Path("/bed/ssd")), request, Path("/bed/ssd/data/.x.tmp"), 32 << 20
    )


def answer(**read):
    percentiles = {"50.000000": 115_000, "95.000000": 131_000}
    side = {"bw_bytes": 163_000_000, "iops": 8700.5, "lat_ns": {"percentile": percentiles}} | read
    return "note: …\n" + json.dumps({"jobs": [{"read": side, "write": {}}]})


def row(model, fio, builtin=None, unit="reads/s", told="this machine: …"):
    return CheckRow("ssd", "random read 4 KiB x1", unit, model, fio, builtin, told)


def test_a_storage_with_a_model_is_read_at_all_depths_and_one_without_in_sequence_alone():
    assert [point.access for point in check.points_to_measure(StorageRequest(HDD))] == ["write", "read"]
    random = check.points_to_measure(SSD)[2:]
    assert {(each.block_bytes, each.depth) for each in random} == {
        (block, depth) for block in (4096, 114_688) for depth in (1, 2, 4, 8, 16, 32)
    }


@pytest.mark.parametrize(
    ("point", "has", "lacks"),
    [
        (WRITE, {"--rw=write", "--overwrite=1", "--end_fsync=1", "--bs=16777216"}, {"--time_based"}),
        (READ, {"--rw=read", "--allow_file_create=0"}, {"--time_based"}),
        (ONE, {"--rw=randread", "--iodepth=1", "--time_based", "--runtime=500ms"}, set()),
        (MANY, {"--iodepth=32", "--bs=4096"}, {"--overwrite=1"}),
    ],
)
def test_fio_is_asked_for_the_point_past_the_page_cache_in_a_file_that_is_there(point, has, lacks):
    command = check.make_fio_command(target(), point)

    assert has | {"--direct=1", "--ioengine=libaio", "--filename=.x.tmp", "--size=33554432"} <= set(command)
    assert not lacks & set(command)


@pytest.mark.parametrize(("read_us", "time"), [(100, "500ms"), (2490, "1000ms"), (100_000, "2500ms")])
def test_what_is_slow_is_measured_for_longer(read_us, time):
    slow = StorageRequest(SSD.speed, model=Model("flash", {**FLASH.parameters, "read_us": read_us}))

    assert f"--runtime={time}" in check.make_fio_command(target(slow), ONE)


def test_of_the_answer_of_fio_rate_and_latencies_are_taken():
    assert check.parse_fio_answer(answer(), READ).rate == 163
    found = check.parse_fio_answer(answer(), ONE)
    assert (found.rate, found.latencies_us) == (8700.5, {"median": 115, "95th percentile": 131})


@pytest.mark.parametrize("said", ["", "{}", '{"jobs": []}', '{"jobs": [{}]}', answer(lat_ns={}), answer(iops=None)])
def test_an_answer_that_is_not_whole_is_none(said):
    with pytest.raises(EngineError):
        check.parse_fio_answer(said, ONE)


@pytest.mark.parametrize(
    ("point", "rate", "after", "told"),
    [
        # 110 us by the model, of which the server answers 30 early; 20 late: it held the request for 100 us.
        (ONE, 5000, {"queue_s": 0.1, "late_s": 0.02},
         "this machine: answers were 20 us late, and the path took path_us +70 us"),
        (ONE, 5000, {"queue_s": 0.15, "late_s": 0.02}, "the model itself took 160 us"),
        (READ, 200, {"busy_s": 0.1},
         "this machine: the model got no request in 40% of the time, and answers were 0 us late"),
        (ONE, 5000, {"reads": 0}, ""),
    ],
)  # fmt: skip
def test_where_the_time_went_is_told_by_what_the_server_did(point, rate, after, told):
    assert check.describe_time(target(), point, rate, SERVED, SERVED | {"reads": 1000} | after) == told


@pytest.mark.parametrize(
    ("each", "difference", "why"),
    [
        (row(100, 95, 102), -0.05, ""),
        (row(100, 95, 80), -0.2, "this machine: …"),  # the engine that is farther off
        (row(100, None, 80), -0.2, "this machine: …"),
        (row(100, 120), 0.2, "faster than its parameters allow"),
        (row(100, 120, unit="us"), 0.2, "this machine: …"),
        (row(100, 80, unit="us"), -0.2, "faster than its parameters allow"),
    ],
)
def test_what_differs_of_either_engine_is_told_with_its_reason(each, difference, why):
    assert each.difference == pytest.approx(difference)
    assert each.differs == (abs(difference) > check.TOLERANCE)
    assert each.why == why


def test_the_table_ends_with_all_that_differs_and_only_that():
    lines = check.format_rows([row(8726.4, 8700), row(114.6, 145.7, unit="us"), row(100.0, None, 50)])

    assert re.split(r"\s{2,}", lines[1]) == ["ssd", "random read 4 KiB x1", "8,726", "reads/s", "8,700", "-", "-0.3%"]
    assert re.split(r"\s{2,}", lines[3])[2:] == ["100.0", "reads/s", "-", "50.0", "-50.0%", "this machine: …"]
    differences = "random read 4 KiB x1 +27%; random read 4 KiB x1 -50%"
    assert lines[4:] == [f"ssd differs from its model by more than 10%: {differences}"]


@pytest.mark.parametrize(
    ("rates", "taken"), [([95], 95), ([80, 99, 85], 85), ([80, 99, 98], 98), ([120, 80, 120], 120)]
)
def test_what_differs_is_measured_twice_more_and_the_middle_of_three_counts(storage, monkeypatch, rates, taken):
    given = iter(rates)
    monkeypatch.setattr(check, "points_to_measure", lambda _: [READ])
    monkeypatch.setattr(check, "_measure_point", lambda *_: [row(100, next(given), 100)])
    (found,) = measured(storage, StorageRequest(HDD))

    assert (found.fio, found.builtin) == (taken, 100)
    assert next(given, None) is None


def test_the_storage_of_another_user_is_refused(storage, monkeypatch):
    monkeypatch.setattr(check.os, "geteuid", lambda: storage.root.stat().st_uid + 1)

    with pytest.raises(EnvironmentFaultError, match="belongs to another user") as refused:
        measured(storage)

    assert refused.value.hint == f"run the check as the owner: sudo -u '#{storage.root.stat().st_uid}' …"


@pytest.fixture
def storage(tmp_path):
    """A folder that stands for a storage that is up."""
    (tmp_path / "ssd" / DATA).mkdir(parents=True)
    return StorageState(tmp_path / "ssd.img", tmp_path / "ssd")


def measured(storage, request=SSD):
    return check.measure_storage("ssd", storage, request, pytest.fail, lambda *_: None)


def test_a_model_with_faults_is_refused(storage, monkeypatch):
    monkeypatch.setattr(check, "ask_server", lambda _: {"faults": {"eio_every": 50.0, "hang": 0.0}})

    with pytest.raises(EnvironmentFaultError, match="the model of ssd injects faults: eio_every 50") as refused:
        measured(storage)

    assert refused.value.hint == f"as root: (echo eio_every 0) > {storage.model}/faults"


@pytest.mark.parametrize(("free", "size"), [((32 << 20) - 1, None), (32 << 20, 16), (97 << 20, 48), (1 << 40, 224)])
def test_the_file_is_whole_requests_of_half_of_what_is_free_and_of_what_is_read_in_a_while(
    free, size, storage, monkeypatch
):
    seen = []
    monkeypatch.setattr(files, "free_bytes", lambda _: free)
    monkeypatch.setattr(check, "points_to_measure", lambda _: [READ])
    monkeypatch.setattr(check.builtin, "run_builtin", lambda order: seen.append(order.file_bytes >> 20) or 1 / 0)

    refused = pytest.raises(EnvironmentFaultError, match="ssd has 34 MB free, but a check needs 34 MB")
    with pytest.raises(ZeroDivisionError) if size else refused:
        measured(storage, StorageRequest(HDD))

    assert seen == [size] * bool(size)


def test_the_file_is_gone_whatever_ends_a_check_and_that_of_one_that_was_killed_too(storage, monkeypatch):
    killed = storage.root / ".testbed-check.0.tmp"
    killed.touch()
    seen = []

    def interrupted(target, _):
        target.file.touch()
        seen.extend(storage.root.iterdir())
        raise KeyboardInterrupt

    monkeypatch.setattr(check, "_measure_by_builtin", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measured(storage, StorageRequest(HDD))

    assert killed not in seen
    assert any(path.name.startswith(".testbed-check.") for path in seen)
    assert not list(storage.root.glob(".testbed-check.*"))


def test_what_is_not_up_is_refused(tmp_path):
    with pytest.raises(EnvironmentFaultError, match="no testbed in"):
        testbed.main(["check", "--folder", str(tmp_path / "none")])
    with pytest.raises(EnvironmentFaultError, match="hdd is unknown in"):
        testbed.main(["check", "hdd", "--folder", str(tmp_path / "none")])


@pytest.mark.long
@pytest.mark.parametrize("kind", ["flash", "rates"])
def test_a_small_storage_is_measured_and_nothing_stays(tmp_path, capsys, kind):
    """Figures are not asserted, for others may use the machine: only that none is faster than its model."""
    required()
    folder, model = tmp_path / "bed", None
    if kind == "flash":
        if not (Path("/dev/fuse").exists() and shutil.which("cc")):
            pytest.skip("a model needs FUSE and a C compiler")
        model = Model("flash", {"path_us": 0, "read_us": 2000, "write_us": 2000, "channels": 4})
    apply.bring_up(folder, {"ssd": StorageRequest(Speed(100.0, 100.0), 128_000_000, model)}, (0, 0))
    try:
        code = testbed.main(["check", "--json", "--folder", str(folder)])
        left = list((folder / "ssd/data").glob(".testbed-check.*"))
    finally:
        apply.take_down(folder)

    rows = json.loads(capsys.readouterr().out)["rows"]
    fio = shutil.which("fio") is not None
    assert len(rows) == (2 if model is None else 14 + 4 * fio)
    assert all((each["fio"] is not None) == fio for each in rows)
    assert code == any(each["differs"] for each in rows)
    assert left == []
    if model:
        assert all(each["difference"] < check.TOLERANCE for each in rows if each["unit"] != "us")
        assert all(each["difference"] > -check.TOLERANCE for each in rows if each["unit"] == "us")
