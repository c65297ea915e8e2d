import json
import shutil

import pytest

from analysis import processes
from analysis.errors import AnalysisError
from analysis.records import read
from analysis.records.contract import OF_SNAPSHOT
from analysis.records.frame import cells_frame, runs_frame
from analysis.records.merit import merit_of
from analysis.records.record import parse
from analysis.statistics.sweeps import swept
from tests.analysis.record_factory import CONTRACT, check, id_of, record, run, store


def rewritten(folder, change):
    """Change the JSON of the first record of a campaign folder; return its path."""
    path = min(folder.glob("records/*/record.json"))
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_the_example_of_the_contract_is_read_whole(tmp_path):
    store(tmp_path, CONTRACT)

    found = read.read(tmp_path)

    assert [each.cell for each in found.records] == ["micro-demo-local-t4-b64-1f0c9a3e77"]
    assert found.records[0].status == "unfinished"
    assert [each.status for each in found.records[0].runs] == ["valid", "invalid", "failed", "running"]
    assert found.skipped == ()


def test_several_processes_read_what_one_does_and_equal_parts_are_one_object(campaign, monkeypatch):
    (campaign / "records" / "odd").mkdir()
    (campaign / "records" / "odd" / "record.json").write_text("{")
    alone = read.read(campaign)
    monkeypatch.setattr(read, "AT_ONCE", 1)
    monkeypatch.setattr(processes, "processors", lambda: 3)

    together = read.read(campaign)

    assert together == alone
    assert len(together.skipped) == 1
    for part in (lambda each: each.provenance, lambda each: each.runs[1].checks, lambda each: each.runs[1].texts):
        assert len({id(part(each)) for found in (alone, together) for each in found.records}) == 1


def test_a_campaign_folder_its_records_folder_and_one_record_are_all_understood(campaign):
    one = min((campaign / "records").iterdir())

    homes = [read.read(each).home for each in (campaign, campaign / "records", one, one / "record.json")]
    counts = [len(read.read(each).records) for each in (campaign, campaign / "records", one)]

    assert homes == [campaign, campaign, one, one]
    assert counts == [4, 4, 1]


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_folder_without_records_is_an_error_with_a_hint(tmp_path, name):
    (tmp_path / "empty").mkdir()

    with pytest.raises(AnalysisError, match="hint: "):
        read.read(tmp_path / name)


def test_a_newer_schema_is_skipped_and_the_cure_is_a_newer_program(campaign):
    rewritten(campaign, lambda value: value.update(schema=2))

    found = read.read(campaign)

    assert found.skipped[0].why == "is of schema 2; this program knows schema 1"
    assert "newer tfio-campaign" in found.skipped[0].cure


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda value: value.pop("runs"), "lacks the key runs"),
        (lambda value: value["cell"].pop("id"), "lacks the key cell.id"),
        (lambda value: value["runs"][0].pop("role"), "lacks the key runs[0].role"),
        (
            lambda value: value.update(profile_cost={"pairs": 3, "median": None, "min": 0, "max": 0}),
            "profile_cost.median",
        ),
        (lambda value: value.update(profile_cost={"pairs": 3}), "lacks the key profile_cost."),
        (lambda value: value.update(cell=[]), "has [] at cell, where an object belongs"),
        (lambda value: value.update(schema="1"), "has '1' at schema"),
        (
            lambda value: value["runs"][1].update(images_per_s="fast"),
            "has 'fast' at runs[1].images_per_s, where a number",
        ),
        (lambda value: value["runs"][1].update(images_per_s=float("nan")), "has nan at runs[1].images_per_s"),
        (lambda value: value["runs"][1].update(bytes_read=0.5), "has 0.5 at runs[1].bytes_read"),
        (lambda value: value["runs"][1]["checks"][0].update(passed="false"), "has 'false' at runs[1].checks[0].passed"),
    ],
)
def test_a_record_that_breaks_the_contract_is_skipped_and_the_break_is_named(campaign, change, why):
    rewritten(campaign, change)

    found = read.read(campaign)

    assert len(found.records) == 3
    assert why in found.skipped[0].why


def test_a_copied_record_does_not_count_its_runs_twice(campaign):
    original = min((campaign / "records").iterdir())
    shutil.copytree(original, campaign / "records" / "a-copy")

    found = read.read(campaign)

    assert len(found.records) == 4
    assert found.skipped[0].path.parent.name == "a-copy"
    assert str(original) in found.skipped[0].why


def test_the_frame_has_a_row_per_run_and_flat_settings(tmp_path):
    made = record([run(1, 100.0), run(2, 110.0)], threads=2, storage="hdd")
    store(tmp_path, made)

    frame = runs_frame(read.read(tmp_path).records)

    assert frame["run"].tolist() == [0, 1, 2]
    assert frame["role"].tolist() == ["warmup", "measured", "measured"]
    assert frame["cell"].unique().tolist() == [id_of(made)]
    assert frame.loc[0, ["threads", "storage.name", "benchmark.preprocess"]].tolist() == [2, "hdd", True]
    assert frame["bytes_read"].tolist() == [57_344_000] * 3
    assert (str(frame["check.cold"].dtype), frame["check.cold"].tolist()) == ("boolean", [True] * 3)
    assert not [name for name in frame if name.startswith("step_") or name == "log_tail"]


TENSORFLOW = {
    "steps_s": 4.0,
    "waited_s": 1.5,
    "spent_s": {"read": 0.5},
    "remedies_s": {"prefetch": 0.25},
    "file": "t.npz",
}
PROFILE = {"files": 3, "opens": 4, "read_s": None, "read_sizes": [7, 8, 9], "file": "p.npz", "sequential": 0.5}
LINES = [dict.fromkeys(OF_SNAPSHOT) | {"blocked_s": blocked, "exposed_s": exposed, "bytes": size}
         for blocked, exposed, size in ((1.0, 0.5, 8), (2.0, 2.5, 9), (9.0, None, 11), (4.0, 0.75, 10))]  # fmt: skip
TARGETS = [{"role": "slow", "source": "dsk/a", "below": ["dsk/b", "dsk/c"]}, {"role": "fast", "source": None}]
# What of a run becomes which of its figures and words.
OF_A_RUN = [
    ({"checkpoints": LINES}, {"snapshot_blocked_s": 3.0, "snapshot_exposed_s": 0.75, "drain_exposed_s": 2.5,
                              "snapshot_bytes": 9.5}, {}),
    ({"profile": PROFILE}, {"posix_files": 3, "posix_opens": 4, "posix_sequential": 0.5,
                            **{f"posix_read_size_{n}": 7 + n for n in range(3)}}, {"profile_file": "p.npz"}),
    ({"tensorflow": TENSORFLOW}, {"tensorflow_steps_s": 4.0, "tensorflow_waited_s": 1.5, "tensorflow_spent_read": 0.5,
                                  "tensorflow_saves_prefetch": 0.25}, {"tensorflow_file": "t.npz"}),
    ({"trace": {"file": "trace-1.csv"}, "engine": "fio", "accelerator": "gpu"}, {},
     {"trace_file": "trace-1.csv", "engine": "fio", "accelerator": "gpu"}),
    ({"targets": TARGETS, "new": 2, "new_s": [1], "more": "x"}, {"new": 2},
     {"source_slow": "dsk/a", "below_slow": "dsk/b dsk/c"}),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "figures", "texts"), OF_A_RUN)
def test_each_figure_and_word_of_a_run_is_what_stands_in_its_record(keys, figures, texts):
    plain, found = (parse(record([run(1, 100.0, **({"trace": None} | more))])).runs[1] for more in ({}, keys))

    assert {name: it for name, it in found.figures.items() if name not in plain.figures} == figures
    assert found.texts == texts
    assert (found.run, found.role, found.status, found.started_utc) == (
        1,
        "measured",
        "valid",
        "2026-11-21T09:00:01.000Z",
    )
    assert (found.figures["images_per_s"], found.figures["bytes_read"]) == (100.0, 57_344_000)


def test_the_limit_of_a_spread_is_that_of_its_check_where_it_is_a_number():
    of_cell = [
        [],
        *([check("quiet", passed=True, limit=9), check("spread", passed=True, limit=it)] for it in (0.04, {})),
    ]

    assert [parse(record([1.0]) | {"checks": checks}).spread_limit for checks in of_cell] == [None, 0.04, None]


@pytest.mark.parametrize(
    ("benchmark", "access", "merit"),
    [
        ("micro", "write", ("pipeline", "images_per_s", "images/s", "higher")),
        ("alexnet", None, ("training", "wall_s", "s", "lower")), ("new", "write", ("pipeline", "wall_s", "s", "lower")),
        ("baseline", "read", ("storage", "read_mb_per_s", "MB/s", "higher")),
        ("baseline", "write", ("storage", "write_mb_per_s", "MB/s", "higher")),
    ],
)  # fmt: skip
def test_a_record_of_before_merits_has_that_of_its_benchmark(benchmark, access, merit):
    cell = {"benchmark": benchmark, "settings": {"benchmark": {"access": access}}}

    assert merit_of(cell) == merit
    assert merit_of(cell | {"settings": {"benchmark": "x"}})[0] == merit[0]
    said = {"kind": "training", "figure": "loss", "unit": "1", "better": "lower"}
    assert merit_of(cell | said) == tuple(said.values())
    assert merit_of(cell | said | {"unit": None}) == merit


def test_a_cell_on_one_node_is_a_point_of_the_sweep_over_nodes(tmp_path):
    several = [record([100, 101], nodes=nodes, sync="barrier") for nodes in (2, 4)]
    store(tmp_path, record([100, 101]), *several)

    cells = cells_frame(read.read(tmp_path).records)

    assert sorted(cells["nodes"]) == [1, 2, 4]
    assert swept(cells) == ["nodes"]
