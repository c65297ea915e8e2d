"""NERSC's logs: their CSV, their workbooks, the totals that these hold, and ours in their form."""

import csv
import io

import pytest

from analysis.traces import action_times
from jobs.events.read_time_logs import read_logs
from jobs.events.run_log import UNACCOUNTED, time_budgets
from jobs.events.table import EventsError
from tests.jobs.events.logs import event, stream

SEVEN = "Epoch, Rank, Action Name, Action Description, Start Time, End Time, Time Taken"
NINE = f"{SEVEN}, Process ID, Current Thread"
THREAD = "<_MainThread(MainThread, started 46912496334784)>"
T = 1530285312.0
# As their program for HEPCNNB wrote them: epoch, rank, function, description, start, end (to 10 ms), time taken.
ROWS = [
    (-1, 0, "main", "Global Total Time", T, T + 20, 20.004),
    (-1, 1, "main", "Global Total Time", T, T + 20.01, 20.0052),
    *(
        (epoch, rank, function, what, T + 1 + 4 * epoch + rank / 100, T + 1 + 4 * epoch + rank / 100 + until, took)
        for epoch in range(2)
        for rank in range(2)
        for function, what, until, took in (
            ("load_data", "HDF5 File Read", 1.0 - epoch / 2, 1.0042 - epoch / 2 + rank / 7),
            ("load_next_file", "Load File", 1.5, 1.5031),
            ("train_loop", "Training Iteration", 3.0, 3.0077),
        )
    ),
    (-1, 0, "load_data", "HDF5 File Read", T + 1.5, T + 2.5, 0.9993),
]  # fmt: skip


def written(path, rows, heading=SEVEN, more=""):
    lines = [", ".join(map(str, row)) + more for row in rows]
    path.write_text("\n".join([heading, *lines, ""]))
    return path


@pytest.fixture(params=["seven", "nine", "workbook"])
def theirs(request, tmp_path):
    if request.param == "workbook":
        openpyxl = pytest.importorskip("openpyxl")
        book = openpyxl.Workbook()
        book.active.title = "calculation"
        sheet = book.create_sheet("output")
        for row in [SEVEN.split(", "), *ROWS]:
            sheet.append([f" {cell}" if place == 3 else cell for place, cell in enumerate(row)])
        book.save(tmp_path / "output.xlsx")
        return tmp_path / "output.xlsx"
    nine = request.param == "nine"
    return written(tmp_path / "output.csv", ROWS, NINE if nine else SEVEN, f", 4711, {THREAD}" if nine else "")


def test_a_budget_takes_an_action_that_is_inside_from_the_one_around_it(theirs):
    log, _ = read_logs([theirs])
    (rank_1,) = time_budgets(log, [1])
    spent = {name: time_ns / 1e9 for name, time_ns in rank_1.spent_ns.items()}

    inner = {"HDF5 File Read": 1.5, "Load File": 1.5, "Training Iteration": 3.0}
    assert spent == pytest.approx({**inner, "Global Total Time": 14.01, UNACCOUNTED: 0.0}, abs=1e-5)


def test_of_actions_on_two_threads_the_one_whose_events_are_shorter_comes_first(tmp_path):
    of = (("long", 0, 4.0, "a"), ("short", 1, 1.5, "b"), ("long", 4, 3.0, "a"))
    rows = [(0, 1, "f", name, T + start, T + start + took, took, 4711, thread) for name, start, took, thread in of]

    (rank,) = time_budgets(read_logs([written(tmp_path / "log.csv", rows, NINE)])[0], [1])

    spent = {name: time_ns / 1e9 for name, time_ns in rank.spent_ns.items()}
    assert spent == {"long": 5.5, "short": 1.5, UNACCOUNTED: 0.0}


ODD = {
    "has 6 fields": "0, 1, f, Load File, 1.0, 2.0",
    "is no event": "0, 1, f, Load File, 1.0, 2.0 TIME LOGGER OUTPUT, 1.0",
    "ends before it begins": "0, 1, f, Load File, 2.0, 1.0, -1.0",
    "has nan instead of seconds": "0, 1, f, Load File, nan, 1.0, 1.0",
    "has 1e400 instead of seconds": "0, 1, f, Load File, 1e400, 1.0, 1.0",
    "has 0.5 instead of a whole number from -1": "0.5, 1, f, Load File, 1.0, 2.0, 1.0",
    "has 8 fields": "0, 1, f, Load, File, 1.0, 2.0, 1.0",
}


@pytest.mark.parametrize("why", ODD)
def test_a_garbled_row_is_named_with_its_line_and_left_out(why, tmp_path):
    file = written(tmp_path / "output.csv", ROWS)
    file.write_text(file.read_text() + ODD[why] + "\n")

    log, _ = read_logs([file])

    assert log.skipped == [f"{file}, line {len(ROWS) + 2}: {why}: {ODD[why].replace(', ', ',')}"]
    assert len(log.events) == len(ROWS)


@pytest.mark.parametrize(
    ("text", "why"),
    [(b"", "line 1: it is no time log"), (b"Epoch, Rank\n", "line 1: it is no time log"), (b"\x89PNG", "no time log"),
     (f"{SEVEN}\n".encode(), "there is no event"), (b"PK\x03\x04 and no more", "is no workbook")],
)  # fmt: skip
def test_a_file_that_is_none_is_refused(text, why, tmp_path):
    if why == "is no workbook":
        pytest.importorskip("openpyxl")
    (tmp_path / "odd").write_bytes(text)

    with pytest.raises(EventsError, match=why):
        read_logs([tmp_path / "odd"])


def test_our_log_in_their_columns_is_read_by_a_script_of_theirs_and_by_us(tmp_path):
    """The dialect is that of their scripts, which take it for granted that nothing is quoted."""
    events = [event("read", 1_000, 900_000, thread=7, place=1), event("step", 0, 1_000_000, place=1)]
    log, _ = read_logs([stream(tmp_path / "log", events, at=2_000_000, places=[(0, -1, -1), (2, 3, 0)])])
    text = b"".join(action_times.nersc_csv(log)).decode()

    rows = list(csv.DictReader(io.StringIO(text), skipinitialspace=True, quoting=csv.QUOTE_NONE, strict=True))

    assert ",".join(rows[0]) == NINE.replace(", ", ",")
    assert [(row["Action Name"], row["Action Description"], row["Epoch"]) for row in rows] == [
        ("read", "HDF5 File Read", "3"), ("step", "Training Iteration", "3"),
    ]  # fmt: skip
    assert [float(row["Time Taken"]) for row in rows] == [0.000899, 0.001]
    (tmp_path / "log.csv").write_text(text)
    again, _ = read_logs([tmp_path / "log.csv"])
    assert again.events["taken"].tolist() == log.events["taken"].tolist()
    assert (again.events["start"] - log.events["start"]).max() < 1000


def test_text_of_others_cannot_end_a_cell_or_act(tmp_path):
    file = written(tmp_path / "odd.csv", [(0, 1, '"=a, b"', '"\x1b[2J""x"', 1.0, 2.0, 1.0)])

    line = b"".join(action_times.nersc_csv(read_logs([file])[0])).splitlines()[1]

    assert line.startswith(b"0, 1, '=a; b, \\x1b[2J'x, 1.0")
