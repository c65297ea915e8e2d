"""`python -m analysis timelog`: what it prints, writes and warns of."""

import json

import pytest

from analysis.__main__ import main
from analysis.cli import timelog
from analysis.text import DASH
from analysis.traces import action_times
from tests.jobs.events.logs import REALTIME, event, stream

MS = 1_000_000
PLACES = [(0, -1, -1), (1, 0, 0), (2, 0, 0), (1, 1, 0)]


@pytest.fixture
def files(tmp_path):
    """Two ranks, each with a read of a second in both epochs, half of it behind a compute."""
    return [
        str(stream(
            tmp_path / f"{rank}.timelog",
            [event("read", at * MS, (at + 1000) * MS, place=place, size=5 * MS, file=1) for at, place in
             ((500 * rank, 1), (2000, 2), (4000, 3))] + [event("compute", 4500 * MS, 5500 * MS, thread=2, place=3)],
            at=6000 * MS, places=PLACES, files=["/data/\x1b[2Ja"], rank=rank, ranks=2,
        ))
        for rank in (0, 1)
    ]  # fmt: skip


@pytest.fixture
def told(files, capsys):
    """Return what gives the JSON of the command with these words."""

    def json_of(*words):
        assert main(["timelog", *files, "--json", *words]) == 0
        return json.loads(capsys.readouterr().out)

    return json_of


def test_json_has_each_definition_by_its_name(told):
    found = told()

    assert set(found) == {"read", "compute"}
    read = found["read"]
    assert {key: read[key] for key in ("count", "sum_per_rank", "union_all", "union_epochs", "bytes")} == {
        "count": 6, "sum_per_rank": 3.0, "union_all": 3.5, "union_epochs": 3.5, "bytes": 30 * MS,
    }  # fmt: skip
    assert (read["union_per_rank"], read["exposed"]) == ({"mean": 3.0, "max": 3.0}, {"mean": 2.5, "max": 2.5})
    assert read["by"]["phase"]["train"]["epoch"]["1"]["exposed"]["mean"] == 0.5
    assert read["by"]["epoch"]["0"]["count"] == 4
    assert read["by"]["rank"]["1"]["union_all"] == 3.0
    assert read["bytes_per_s"]["wall"] == 5 * MS


@pytest.mark.parametrize(("key", "value"), [("rank", "1"), ("phase", "train"), ("epoch", "0")])
def test_a_part_alone_is_what_it_is_in_the_whole(key, value, told):
    whole = told()["read"]["by"][key][value]

    part = told(f"--{key}", value)["read"]

    by = part.pop("by")
    assert part == {name: figure for name, figure in whole.items() if name != "epoch"}
    assert by[key] == {value: whole}
    if key == "rank":
        both = {name: figure for name, figure in by["phase"]["train"].items() if name != "epoch"}
        assert both["union_per_rank"] == {"mean": both["sum_per_rank"], "max": 2.0}
        assert by["phase"]["train"]["epoch"]["1"]["sum_per_rank"] == by["epoch"]["1"]["sum_per_rank"] == 1.0


def test_a_rank_alone_is_all_that_is_shown_and_written(files, told, tmp_path, capsys):
    out = [tmp_path / "a.csv", tmp_path / "a.json"]

    assert told("--budget", "--rank", "1") == {"1": told("--budget")["1"]}
    assert main(["timelog", *files, "--rank", "1", "--csv", str(out[0]), "--chrome", str(out[1])]) == 0
    assert ["wall", "6.00", "100.0", "%", "6.00", "1", "6.00", "1"] in [
        line.split() for line in capsys.readouterr().out.splitlines()
    ]
    assert {line.split(", ")[1] for line in out[0].read_text().splitlines()[1:]} == {"1"}
    assert {each["pid"] for each in json.loads(out[1].read_text())["traceEvents"]} == {1}


def test_a_phase_or_an_epoch_has_no_budget(files, tmp_path, capsys):
    assert main(["timelog", *files, "--epoch", "1", "--csv", str(tmp_path / "a.csv")]) == 0
    assert "unaccounted" not in capsys.readouterr().out
    assert {line.split(", ")[0] for line in (tmp_path / "a.csv").read_text().splitlines()[1:]} == {"1"}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--epoch", "7"], "the logs have no event of the phase, epoch and rank"),
        (["--budget", "--rank", "2"], "no FILE is a log of rank 2"),
        (["--budget", "--phase", "train"], "--budget cannot be combined with --phase"),
        (["none"], "none'\n\nhint: name a file that exists"),
        (["odd"], "odd, line 1: it is no time log\n\nhint: take files of jobs.events.TimeLog"),
    ],
)
def test_what_is_not_there_or_makes_no_sense_is_an_error_with_a_cure(words, why, files, tmp_path, capsys):
    (tmp_path / "odd").write_text("hello\n")
    words = [str(tmp_path / each) if each in {"none", "odd"} else each for each in words]

    assert main(["timelog", *files, *words]) == 2
    assert why in capsys.readouterr().err


def test_the_budget_of_each_rank_adds_up_to_its_wall(told):
    found = told("--budget")

    assert {rank: each["spent_s"] for rank, each in found.items()} == {
        rank: {"compute": 1.0, "read": 2.5, "unaccounted": 2.5} for rank in ("0", "1")
    }
    assert found["1"]["wall_s"] == 6.0
    assert found["1"]["clock"] == {"low_s": 0.0, "high_s": 0.0, "shift_s": 0.0, "apart_s": 0.0}


def test_a_person_reads_all_of_it(files, capsys):
    assert main(["timelog", *files]) == 0

    said = capsys.readouterr().out
    rows = [line.split() for line in said.splitlines()]
    assert ["read", "6", "3.00", "3.00", "3.00", "3.50", "3.50", "2.50", "2.50"] in rows
    assert ["rank", "1", "3", *["3.00"] * 5, "2.50", "2.50"] in rows
    assert ["unaccounted", "2.50", "41.7", "%", "2.50", "0", "2.50", "0"] in rows
    assert "rank 0 started last, 0.000 s after the first" in said


def test_epochs_that_are_not_shown_are_told_of(files, capsys, monkeypatch):
    monkeypatch.setattr(action_times, "MOST_EPOCHS", 1)

    assert main(["timelog", *files]) == 0
    assert "at most 1 epochs of each action are listed; to list another epoch, use --epoch N" in capsys.readouterr().err
    assert main(["timelog", *files, "--epoch", "1"]) == 0
    assert "epochs" not in capsys.readouterr().err


def test_what_is_written_is_for_other_programs(files, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    assert main(["timelog", *files, "--csv", str(out / "a.csv"), "--chrome", str(out / "a.json")]) == 0

    said = capsys.readouterr().out
    assert said.splitlines()[-2:] == [str(out / "a.csv"), str(out / "a.json")]
    trace = json.loads((out / "a.json").read_text())["traceEvents"]
    assert [each["args"]["name"] for each in trace if each["ph"] == "M"] == ["rank 0 n1 10", "rank 1 n1 10"]
    assert trace[1] == {
        "ph": "X", "name": "read", "cat": "read", "pid": 0, "tid": 0, "ts": 0.0, "dur": 1e6,
        "args": {"phase": "train", "epoch": 0, "step": 0, "bytes": 5 * MS, "file": "/data/\x1b[2Ja"},
    }  # fmt: skip
    assert len((out / "a.csv").read_text().splitlines()) == 9


@pytest.mark.parametrize("words", [("--csv", "0.timelog"), ("--csv", "a", "--chrome", "a"), ("--chrome", "none/a")])
def test_no_file_of_the_command_is_replaced_and_no_folder_is_made(words, files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    before = (tmp_path / "0.timelog").read_bytes()

    assert main(["timelog", *files, *words]) == 2
    said = capsys.readouterr().err
    assert ("is also an input file of this command" in said) != ("there is no folder none\n\nhint: make it" in said)
    assert ((tmp_path / "0.timelog").read_bytes(), (tmp_path / "none").exists()) == (before, False)


def test_what_is_missing_or_uncertain_is_said(tmp_path, capsys):
    of = [{"rank": rank, "ranks": 40, "clock": str(rank), "realtime_ns": REALTIME - rank * 5 * MS} for rank in (0, 1)]
    files = [str(stream(tmp_path / f"{rank}", [event("read", 0, 9)], **of[rank])) for rank in (0, 1)]

    assert timelog.main(files) == 0

    said = capsys.readouterr().err
    assert "the logs of 38 of 40 ranks are missing (2, 3, 4, 5, 6, 7, 8, 9, 10, 11)" in said
    assert "rank 1, process 10: the system clock moved by +0.005 s relative to the monotonic clock of the log" in said
    assert "no barrier limits how much the clocks of nodes differ" in said


@pytest.mark.parametrize(("moved", "told"), [(MS, False), (MS + 1, True), (-MS - 1, True)])
def test_a_time_of_day_that_moved_by_more_than_a_millisecond_is_said(moved, told, tmp_path, capsys):
    file = stream(tmp_path / "log", [event("read", 0, 9)], realtime_ns=REALTIME - moved)

    assert timelog.main([str(file)]) == 0
    assert (f"the system clock moved by {moved / 1e9:+.3f} s" in capsys.readouterr().err) is told


def test_clocks_that_went_apart_are_said_to_have_and_the_one_that_is_known_least_is_named(tmp_path, capsys):
    events = [[event("barrier", 0, 10), event("barrier", 500 + late, 510 + late)] for late in (0, 2_500_000, 0)]
    files = [
        str(stream(tmp_path / f"{n}", own, at=10 * MS, rank=n, ranks=3, clock=str(n))) for n, own in enumerate(events)
    ]

    assert timelog.main(files) == 0

    said = capsys.readouterr()
    assert "the clocks of nodes drifted apart by 2.500 ms during the run, or some rank did not wait" in said.err
    assert "the clock of rank 1 is least certain: +0.000 to +2.500 ms ahead of the first rank's clock" in said.out


def test_what_is_shorter_than_a_millisecond_is_written_with_its_power_and_a_log_of_no_sizes_with_dashes(
    tmp_path, capsys
):
    taken = [event("read", 0, 999_999), event("wait", 0, MS), event("open", 0, 0, size=7)]

    assert timelog.main([str(stream(tmp_path / "log", taken, at=2 * MS))]) == 0

    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["read", "1", *["1.0e-03"] * 7] in rows
    assert ["wait", "1", *["0.00100"] * 7] in rows
    assert ["open", "0", "0", "0", "7.00", DASH, DASH, "0.00350"] in rows


def test_rows_that_were_left_out_show_in_the_exit_code(tmp_path, capsys):
    text = (
        "Epoch, Rank, Action Name, Action Description, Start Time, End Time, Time Taken\n0, 0, f, Load File, 1, 2, 1\n"
    )
    (tmp_path / "log.csv").write_text(text + "0, \x1b[2J\n" * 12)

    assert main(["timelog", str(tmp_path / "log.csv")]) == 1

    said = capsys.readouterr()
    assert "log.csv, line 3: has 2 fields: 0,\\x1b[2J; left out" in said.err
    assert "2 more rows are left out" in said.err
    assert "Load File" in said.out
