"""What `show` says of runs that have less than others."""

import json

import pytest

from campaign.cells.cell import make_cell
from campaign.cli import show
from campaign.errors import EnvironmentFaultError, UsageError
from tests.campaign.fake_template import TERMS, failed
from tests.campaign.on_disk import leave_record
from tests.campaign.work_lists import compose

DATA = {"path": "/d", "files": 1, "bytes": 2}


@pytest.fixture
def told(cells, folder, capsys):
    """A function: the lines that are printed of a cell whose record has these runs and keys."""

    def tell(*runs, cell=cells[0][0], **keys):
        leave_record(folder, cell, *runs, **{"data": DATA, **keys})
        show.main([cell.id, str(folder.root)])
        return capsys.readouterr().out.splitlines()

    return tell


@pytest.mark.parametrize(
    ("trace", "lacks"),
    [
        (None, []),
        ({"error": None, "sources": {"dsk/vda": "ok"}}, []),
        ({"error": "No space left on device", "sources": {}}, ["not written: No space left on device"]),
        ({"error": None, "sources": {"llite/x": "not readable"}}, ["llite/x: not readable"]),
    ],
)
def test_a_run_is_told_whatever_its_trace_lacks(trace, lacks, told):
    lines = told({**failed("because"), "trace": trace}, status="failed")

    assert "  reason       because" in lines
    assert [line.split(None, 1)[1] for line in lines if line.startswith("  trace ")] == lacks


def test_each_rank_of_a_run_is_told_with_the_one_that_ended_last(told):
    ranks = [
        {"rank": rank, "node": f"n{rank}", "host": "h", "left_s": 0.001, "clock_s": [-0.002, 0.001],
         "ended_s": 2.0 + rank, "figures": {"wall_s": 2.0 + rank, "bytes_read": 3_000_000}}
        for rank in range(2)
    ]  # fmt: skip
    run = {**failed("because"), "ranks": ranks, "straggler": 1, "private_caches": 0}

    lines = told(run, status="failed")

    (last,) = (line for line in lines if line.startswith("  rank 1"))
    assert last.split(None, 2)[2] == (
        "n1: 3.0000 s, 3.0 MB; began within 1.00 ms, ended after 3.0000 s, the last one; clock -2.00 to +1.00 ms"
    )
    assert any("share a page cache" in line for line in lines)


def test_looser_checks_than_the_sites_are_told_with_the_cure(told):
    looser = ["checks.spread_max=0.2 (the site's: 0.04)"]

    terms = {**TERMS, "checks": {**TERMS["checks"], "spread_max": 0.2}}
    (line,) = (line for line in told(terms=terms, status="done") if line.startswith("  looser "))
    assert f"judged by looser checks than the site's: {looser[0]}; not compared with other cells; cure: " in line


def test_a_flag_may_stand_between_cell_and_folder(cells, folder, capsys):
    cell = leave_record(folder, cells[0][0], data=DATA)["cell"]["id"]

    show.main([cell, "--json", str(folder.root)])

    assert json.loads(capsys.readouterr().out)["cell"]["id"] == cell


def test_a_record_that_is_damaged_inside_is_told(cells, folder):
    cell = leave_record(folder, cells[0][0], data={"path": "/d", "files": 1})["cell"]["id"]

    with pytest.raises(EnvironmentFaultError, match="is damaged inside"):
        show.main([cell, str(folder.root)])


@pytest.mark.parametrize(
    ("name", "message", "cure"),
    [
        ("micro-demo", "matches 2 cells", "name one of: micro-demo-local-t1"),
        ("micro-dmo", "no recorded cell", "micro-demo"),
    ],
)
def test_a_name_that_is_not_one_cells_is_told_with_those_that_there_are(name, message, cure, cells, folder):
    with pytest.raises(UsageError, match="no recorded cell") as none:
        show.main([name, str(folder.root)])
    for cell in cells[0][:2]:
        leave_record(folder, cell, data=DATA)

    with pytest.raises(UsageError, match=message) as caught:
        show.main([name, str(folder.root)])

    assert (none.value.hint, cure in caught.value.hint) == ("nothing is recorded yet", True)


@pytest.mark.parametrize("of_hash", [True, False])
def test_the_shortest_beginning_that_one_cell_alone_has_names_it(of_hash, cells, folder, capsys):
    ids = [leave_record(folder, cell, data=DATA)["cell"]["id"] for cell in cells[0]]
    words = [cell.rpartition("-")[2] if of_hash else cell for cell in ids]
    first, *others = words
    least = next(n for n in range(1, len(first)) if not [each for each in others if each.startswith(first[:n])])

    show.main([first[:least], str(folder.root)])

    assert capsys.readouterr().out.startswith(ids[0])
    if shared := first[: least - 1]:
        with pytest.raises(UsageError, match="matches") as caught:
            show.main([shared, str(folder.root)])
        alike = sorted(cell for cell, word in zip(ids, words, strict=True) if word.startswith(shared))
        assert caught.value.hint == f"name one of: {', '.join(alike)}"


def test_of_many_cells_that_a_name_may_mean_ten_are_listed(folder):
    for number in range(12):
        path = folder.record(f"micro-00000000{number:02}")
        path.parent.mkdir(parents=True)
        path.touch()

    with pytest.raises(UsageError, match="'0000' matches 12 cells") as caught:
        show.main(["0000", str(folder.root)])

    assert caught.value.hint.endswith("micro-0000000009 and 2 more")


def test_an_empty_name_of_a_cell_is_told_and_where_the_names_are(folder):
    with pytest.raises(UsageError, match="the name of the cell is empty") as caught:
        show.main(["", str(folder.root)])

    assert caught.value.hint == f"python -m campaign status --all {folder.root} lists all cells"


def test_a_folder_in_the_place_of_the_cell_is_told_with_the_right_order(folder):
    with pytest.raises(UsageError, match="show takes a cell as its first argument") as caught:
        show.main([str(folder.root), "399c"])

    assert caught.value.hint == f"python -m campaign show 399c {folder.root}"


def test_a_baseline_is_told_though_it_has_no_images(told):
    added = {"until_spread": 0.01, "n": 5, "interval": [150.0, 160.0], "confidence": 0.9375, "width": 0.07}
    run = {"status": "valid", "read_mb_per_s": 155.0, "added": added, "rate": {"key": "read_mb_per_s", "unit": "MB/s"}}
    data = {"path": "/hdd/baseline", "bytes": 5_000_000_000}

    out = "\n".join(told(run, cell=make_cell(compose("benchmark=baseline")), data=data))

    assert "data       /hdd/baseline: 5000.0 MB" in out
    assert "valid, 155.0 MB/s" in out
    assert "was 150.0 to 160.0 MB/s" in out
