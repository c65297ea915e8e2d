"""Which cells share a figure, and what is derived of them beside their medians."""

import pytest

from analysis.records.frame import rows_of
from analysis.statistics import selection
from analysis.statistics.training import device_shared_with_data
from tests.analysis.figures.test_swept_settings import toy
from tests.analysis.nersc_factory import hepcnn
from tests.analysis.record_factory import id_of, record, scattered
from tests.analysis.saving_factory import saved, snapshots
from tests.analysis.training_factory import frames, row_of, table_of, training

SOURCES, BELOW = {"fast": "dsk/nvme0n1", "slow": "dsk/sda"}, {"fast": ["dsk/a", "dsk/b"], "slow": ["dsk/c"]}


def test_what_a_cell_saves_where_and_how_is_told_of_its_settings_and_runs():
    names = ("target", "target_name", "mode", "target_storage", "fast_storage", "target_device", "fast_device",
             "target_below", "fast_below")  # fmt: skip
    buffered = saved("optane to hdd", [9.0] * 3, sources=SOURCES, below=BELOW, mode="async", in_flight=3)
    alone = saved("ssd", [8.0] * 3, sources={"only": "dsk/sdb"}, below={"only": ["dsk/x"]})
    emulated = saved("ssd", [7.0] * 3, sources={"only": "dsk/sdb"}, below={"only": ["dsk/x"]}, keep=1)
    emulated["provenance"]["emulated"] = {"checkpoint": {"name": "ssd"}}

    table = table_of(buffered, alone, emulated, saved("none", [6.0] * 3), record([5.0]))[[*names]].fillna("")

    assert table.to_numpy().tolist() == [
        ["burst buffer, optane to hdd", "burst_buffer", "async, 3 in flight", "hdd", "optane", "dsk/sda", "dsk/nvme0n1",
         "dsk/c", "dsk/a dsk/b"],
        ["ssd", "ssd", "sync", "ssd", "None", "dsk/sdb", "", "dsk/x", ""],
        ["ssd (emulated)", "ssd", "sync", "ssd", "None", "dsk/sdb", "", "", ""],
        ["none", "none", "", "none", "None", "", "", "", ""], ["", "none", "", "none", "None", "", "", "", ""],
    ]  # fmt: skip
    assert [device_shared_with_data({"device": "dsk/c", **row}) for row in rows_of(table)] == ["dsk/c", "", "", "", ""]


def test_the_seconds_of_a_snapshot_are_medians_over_the_runs_of_each_runs_median():
    row = row_of(saved("optane to hdd", [9.0, 8.0, 7.0], (2.0, 3.0, 5.0)), record([9.0]))
    lines = [snapshots(n, 2.0, 3.0, 5.0)[2] for n in (1, 2, 3)]

    for name in ("blocked_s", "durable_fast_s", "durable_slow_s"):
        least, middle, most = sorted(line[name] for line in lines)
        ends = [row[f"snapshot_{name}{end}"] for end in ("_min", "", "_max")]
        assert ends == pytest.approx([least, middle, most])


def batches(sizes, steps, **settings):
    return [training([9.0], batch_size=size, iterations=number, **settings) for size in sizes for number in steps(size)]


@pytest.mark.parametrize(
    ("made", "sets"),
    [
        (batches((16, 32), lambda size: [9088 // size]), [[16, 32]]),  # an epoch each
        (batches((16, 32), lambda size: [10, 9088 // size]), [[16], [16, 32], [32]]),
        (batches((16, 32), lambda _: [10]) + batches((16,), lambda _: [10], threads=8), [[16], [16, 32]]),
        (batches((128, 16), lambda _: [10], seed=1) + batches((64,), lambda _: [10]), [[16, 128], [64]]),
    ],
)
def test_batch_sizes_share_a_set_and_numbers_of_batches_where_each_has_one(made, sets):
    cells = selection.cells_without_snapshots(
        selection.training_cells(frames(*made, record([9.0]), training([9.0], control="no_io"))[0])
    )

    assert sorted(sorted(rows["batch_size"]) for rows in selection.batch_sets(cells).values()) == sets


def test_cells_without_partner_or_with_several_say_so_and_stand_in_the_papers_order():
    made = [training([9.0], storage=name, threads=n, prefetch=p) for name, n, p in
            (("zfs", 1, 0), ("lustre", 8, 1), ("hdd", 16, 1), ("hdd", 2, 0), ("hdd", 2, 1))]  # fmt: skip
    twin = training([8.0], storage="zfs", threads=1, prefetch=0, seed=0)
    twin["cell"]["id"] += "-2"
    place = ["storage", "threads", "prefetch"]
    cells = selection.with_status_of_drawing(selection.training_cells(frames(*made, twin)[0]), place, "wall_s")

    whole = selection.add_missing_partners(cells, ["threads"])

    assert [tuple(row[name] for name in (*place, "status")) for row in rows_of(whole)] == [
        ("hdd", 2, 1, "done"), ("hdd", 2, 0, "done"), ("hdd", 16, 1, "done"), ("hdd", 16, 0, selection.ABSENT),
        ("lustre", 8, 1, "done"), ("lustre", 8, 0, selection.ABSENT), ("zfs", 1, 1, selection.ABSENT),
        ("zfs", 1, 0, "ambiguous"), ("zfs", 1, 0, "ambiguous"),
    ]  # fmt: skip
    assert whole["cell"].tolist().count("") == 3


def test_prefetch_is_compared_with_none_number_by_number():
    made = [training([9.0], threads=n, prefetch=p) for n, p in ((1, 0), (1, 1), (2, 4), (8, 0))]

    sets = selection.sets_by_prefetch(
        selection.sets_of_settings(selection.training_cells(frames(*made)[0]), {"prefetch"})
    )

    assert {key.facts["prefetch"]: sorted(rows["prefetch"]) for key, rows in sets.items()} == {
        1: [0, 0, 1],
        4: [0, 0, 4],
    }


def test_sets_of_targets_hold_the_training_without_any_and_come_in_the_papers_order():
    made = [saved(target, [9.0]) for target in ("zfs", "optane to hdd", "ssd", "hdd", "none")]
    made += [saved("ssd", [9.0], mode="async"), saved("hdd", [9.0], every=5)]

    sets = selection.saving_sets(selection.training_cells(frames(*made)[0]), selection.HOW)

    found = {
        key.facts["checkpoint.every"]: list(zip(rows["target_name"], rows["mode"], strict=True))
        for key, rows in sets.items()
    }
    every = [
        ("none", ""),
        ("hdd", "sync"),
        ("ssd", "sync"),
        ("ssd", "async"),
        ("burst_buffer", "sync"),
        ("zfs", "sync"),
    ]
    assert found == {20: every, 5: [("none", ""), ("hdd", "sync")]}


def test_what_was_swept_is_held_where_most_of_it_was_measured():
    made = [toy(scattered(9.0), size=size, benchmark__way=way, threads=n)
            for size, way, n in ((1, "a", 1), (2, "b", 1), (3, "b", 1), (4, "c", 1), (5, "b", 2))]  # fmt: skip
    table = frames(*made, record([9.0]))[0]
    ((shared, cells),) = selection.plain_sets(table)

    assert selection.swept_names(cells) == ["benchmark.size", "benchmark.way", "threads"]
    held = selection.cells_of_commonest_values(cells, "benchmark.size", ["benchmark.way", "threads"])
    assert sorted(held["benchmark.size"]) == [2, 3]
    assert (shared.facts["benchmark"], "threads" in shared.facts, "benchmark.size" in shared.facts) == (
        "toy",
        False,
        False,
    )
    assert sorted([2, "a", 10, True, None, 1.5], key=selection.setting_sort_key) == [1.5, 2, 10, None, True, "a"]


def test_the_parts_of_a_nersc_training_are_medians_of_its_runs_and_add_up():
    made = hepcnn(4, "global", 24)
    for place, each in enumerate(made["runs"][1:]):
        each["wall_s"] += place**2
        each["images_per_s"] = 512 / each["wall_s"]
        del each["read_mb_per_s"]
    first = made["runs"][1]
    cells = selection.workloads(*frames(made, hepcnn(1, "local", 8), record([9.0]))[:2]).set_index("cell")

    row = cells.loc[id_of(made)]

    assert row[["nodes", "benchmark.shuffle", "sync", "benchmark.control"]].tolist() == [4, "global", "barrier", "none"]
    known = {"read_s": first["read_s"], "unpack_s": 1.0, "compute_s": 20.0, "validate_s": 0.5, "checkpoint_s": 0.0}
    assert row[[*known]].tolist() == pytest.approx([*known.values()])
    assert row["rest_s"] == pytest.approx(0.1 + 4)  # the middle one of 0, 1, 4, 9 and 16 s more
    assert row["io_share"] == pytest.approx(first["read_s"] / (first["wall_s"] + 4))
    assert (sorted(cells["nodes"]), row["loads"], row["train_cold_loads"]) == ([1, 4], 40, 24)
