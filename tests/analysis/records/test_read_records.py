import copy
import json
import shutil

import pytest

from analysis.errors import AnalysisError
from analysis.records import read_records
from analysis.records.frame import runs_frame
from analysis.records.runs import OF_SNAPSHOT
from tests.analysis.baseline_records import baseline
from tests.analysis.record_factory import CONTRACT, id_of, parse, record, run, store
from tests.analysis.saving_factory import WRITTEN


def rewritten(folder, change):
    """Change the JSON of the first record of a campaign folder; return its path."""
    path = min(folder.glob("records/*/record.json"))
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_the_example_of_the_contract_is_read_whole(tmp_path):
    store(tmp_path, CONTRACT)

    found = read_records.read_records(tmp_path)

    assert [each.cell for each in found.records] == ["micro-demo-local-t4-b64-1f0c9a3e77"]
    assert found.records[0].status == "unfinished"
    assert [each.status for each in found.records[0].runs] == ["valid", "invalid", "failed", "running"]
    assert found.skipped == ()


def test_a_campaign_folder_its_records_folder_and_one_record_are_all_understood(campaign):
    one = min((campaign / "records").iterdir())

    homes = [
        read_records.read_records(each).home for each in (campaign, campaign / "records", one, one / "record.json")
    ]
    counts = [len(read_records.read_records(each).records) for each in (campaign, campaign / "records", one)]

    assert homes == [campaign, campaign, one, one]
    assert counts == [4, 4, 1]


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_folder_without_records_is_an_error_with_a_hint(tmp_path, name):
    (tmp_path / "empty").mkdir()

    with pytest.raises(AnalysisError, match="hint: "):
        read_records.read_records(tmp_path / name)


def test_a_newer_schema_is_skipped_and_the_cure_is_a_newer_program(campaign):
    rewritten(campaign, lambda value: value.update(schema=2))

    found = read_records.read_records(campaign)

    assert found.skipped[0].why == "is of schema 2; this program knows schema 1"
    assert "newer version of tfio-campaign" in found.skipped[0].cure


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda value: value["runs"][1].pop("role"), "is damaged: runs[1].role is missing"),
        (lambda value: value["runs"][2].update(images_per_s=1.0), "contradicts itself: runs[2].images_per_s is 1"),
        (lambda value: value["runs"][1].pop("elapsed_s"), "cannot be judged: KeyError 'elapsed_s'"),
    ],
)
def test_a_record_that_breaks_the_contract_is_skipped_and_the_break_is_named(campaign, change, why):
    rewritten(campaign, change)

    found = read_records.read_records(campaign)

    assert len(found.records) == 3
    assert why in found.skipped[0].why


def test_a_record_is_judged_by_the_last_request_that_names_its_cell_and_stays_as_it_is(campaign):
    path = min(campaign.glob("records/*/record.json"))
    rewritten(campaign, lambda value: [each.update(other_cpu=0.4) for each in value["runs"]])
    before, terms = path.read_bytes(), copy.deepcopy(CONTRACT["terms"])
    strict = terms | {"checks": terms["checks"] | {"other_cpu_max": 0.1}}
    named = [{"cells": [path.parent.name], "terms": each} for each in (terms, strict)]
    requests = [*named, {"cells": ["another"], "terms": terms}]
    (campaign / "campaign.json").write_text(json.dumps({"schema": 1, "tool": "", "requests": requests}))

    found = {each.cell: each for each in read_records.read_records(campaign).records}

    judged = found.pop(path.parent.name)
    assert {run.status for run in judged.runs} == {"invalid"}
    assert judged.reason.startswith("0 of 3 measured runs valid, 3 needed; quiet: ")
    assert {run.status for each in found.values() for run in each.runs} == {"valid"}
    assert path.read_bytes() == before


def test_a_requested_cell_whose_record_is_gone_or_was_never_made_is_missing(campaign):
    cells = [folder.name for folder in sorted((campaign / "records").iterdir())]
    requests = [{"cells": cells[:3]}, {"cells": [*cells[2:], "z-never-measured"]}]
    (campaign / "campaign.json").write_text(json.dumps({"schema": 1, "tool": "", "requests": requests}))
    assert read_records.read_records(campaign).missing == ("z-never-measured",)
    (campaign / "records" / cells[0] / "record.json").write_text("{")  # is skipped, and not missing
    shutil.rmtree(campaign / "records" / cells[1])

    whole, one = (read_records.read_records(each) for each in (campaign, campaign / "records" / cells[2]))

    assert (whole.missing, len(whole.requested)) == ((cells[1], "z-never-measured"), len(cells) + 1)
    assert [each.path.parent.name for each in whole.skipped] == [cells[0]]
    assert one.missing == ()


@pytest.mark.parametrize(("rate", "status"), [(1.0, "valid"), (3.0, "invalid")])
def test_a_cell_that_is_faster_than_its_storage_by_itself_does_not_count(tmp_path, rate, status):
    alone = baseline([1.0, 1.0, 1.0], "random_read")
    store(tmp_path, alone, record([run(1, rate / 0.112, size=112_000)]))  # of each of its images so many bytes

    found = {each.benchmark: each for each in read_records.read_records(tmp_path).records}

    assert found["micro"].runs[1].status == status
    assert [check.passed for check in found["micro"].runs[1].checks if check.rule == "below_peak"] == [rate == 1.0]


@pytest.mark.parametrize("damage", ["{", '{"schema": 9}', '{"schema": 1, "tool": "", "requests": [{"cells": [5]}]}'])
def test_a_campaign_whose_limits_nobody_can_read_is_judged_by_those_of_the_workers_and_says_so(campaign, damage):
    (campaign / "campaign.json").write_text(damage)

    found = read_records.read_records(campaign)

    assert [(each.path.name, len(found.records)) for each in found.skipped] == [("campaign.json", 4)]
    assert "each cell is judged by the limits of its last worker" in found.skipped[0].why


def test_one_record_is_judged_as_it_is_among_the_others_of_its_campaign(tmp_path):
    slow = record([run(1, 3.0 / 0.112, size=112_000)])
    store(tmp_path, baseline([1.0, 1.0, 1.0], "random_read"), slow)

    (alone,) = read_records.read_records(tmp_path / "records" / slow["cell"]["id"]).records

    assert alone.runs[1].status == "invalid"
    assert alone in read_records.read_records(tmp_path).records


def _contradictory(folder, value):
    value["runs"][1]["wall_s"] *= 9
    (folder / "record.json").write_text(json.dumps(value))


def _behind_a_link(folder, _):
    folder.rename(folder.parent.parent / "elsewhere")
    folder.symlink_to(folder.parent.parent / "elsewhere")


@pytest.mark.parametrize("spoil", [_contradictory, _behind_a_link])
def test_a_baseline_that_is_left_out_judges_no_other_cell(tmp_path, spoil):
    alone = baseline([1.0, 1.0, 1.0], "random_read")
    store(tmp_path, alone, record([run(1, 3.0 / 0.112, size=112_000)]))
    spoil(tmp_path / "records" / alone["cell"]["id"], alone)

    found = read_records.read_records(tmp_path)

    assert [each.path.parent.name for each in found.skipped] == [alone["cell"]["id"]]
    assert found.records[0].runs[1].status == "valid"


def test_a_copied_record_does_not_count_its_runs_twice(campaign):
    original = min((campaign / "records").iterdir())
    shutil.copytree(original, campaign / "records" / "a-copy")

    found = read_records.read_records(campaign)

    assert len(found.records) == 4
    assert found.skipped[0].path.parent.name == "a-copy"
    assert str(original) in found.skipped[0].why


def test_the_frame_has_a_row_per_run_and_flat_settings(tmp_path):
    made = record([run(1, 100.0), run(2, 110.0)], threads=2, storage="hdd")
    store(tmp_path, made)

    frame = runs_frame(read_records.read_records(tmp_path).records)

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
LINES = [dict.fromkeys(OF_SNAPSHOT) | {"blocked_s": blocked, "exposed_s": exposed, "bytes": size, "verified": True}
         for blocked, exposed, size in ((1.0, 0.5, 8), (2.0, 2.5, 9), (9.0, None, 11), (4.0, 0.75, 10))]  # fmt: skip
TARGETS = [{"role": "slow", "source": "dsk/a", "below": ["dsk/b", "dsk/c"]}, {"role": "fast", "source": None}]
SAVED = {"checkpoints_asked": 4, "checkpoint_troubles": [], "targets": [{"role": "only", "source": None, **WRITTEN}]}
# What of a run becomes which of its figures and words.
OF_A_RUN = [
    ({"checkpoints": LINES, **SAVED}, {"snapshot_blocked_s": 3.0, "snapshot_exposed_s": 0.75, "drain_exposed_s": 3.75,
                              "snapshot_bytes": 9.5, "checkpoints_asked": 4}, {}),
    ({"profile": PROFILE}, {"posix_files": 3, "posix_opens": 4, "posix_sequential": 0.5, "posix_bytes_read": 57_344_000,
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


@pytest.mark.parametrize("closed", ["records", "."])
def test_a_folder_that_this_user_may_not_read_is_named_so(closed, scratch, stranger):
    folder = scratch / "results"
    store(folder, CONTRACT)
    folder.chmod(0o755)
    (folder / closed).chmod(0o700)

    def look():
        with pytest.raises(AnalysisError, match=r"cannot be read: permission denied"):
            read_records.locate_records(folder)

    stranger(look)
