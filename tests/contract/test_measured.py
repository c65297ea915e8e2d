"""A campaign that was measured once, with all files that its figures need: the same words are the same cells, its
records the same tables, byte for byte.

`measured/campaign` has 22 cells of four benchmarks, with snapshots to one storage and through a burst buffer, profiles,
baselines, and a cell that others disturbed. Its numbers were held against those of the version that measured it.
"""

import json
from pathlib import Path

import pytest

from analysis.__main__ import main
from campaign.config.collect import collect_points, make_cells
from tests.analysis.record_factory import leave_unrendered

ACCEPTANCE = Path(__file__).parents[1] / "acceptance"
CAMPAIGN, EXPECTED = ACCEPTANCE / "stored" / "measured", sorted((ACCEPTANCE / "goldens" / "measured").iterdir())


def test_the_same_words_are_the_same_cells():
    requests = json.loads((CAMPAIGN / "campaign.json").read_text(encoding="utf-8"))["requests"]

    ids = {cell.id for request in requests for cell in make_cells(collect_points(request["words"]))[0]}

    assert ids == {record.parent.name for record in (CAMPAIGN / "records").glob("*/record.json")}
    assert len(ids) == 22


def write_tables(out):
    """Analyse the records; return the path of each CSV file by its name."""
    with pytest.MonkeyPatch.context() as patch:
        leave_unrendered(patch)
        assert main([str(CAMPAIGN), "--out", str(out), "--quiet"]) == 0
    return {path.name: path for path in out.rglob("*.csv")}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_tables(tmp_path_factory.mktemp("out"))


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda path: path.name)
def test_the_records_give_the_same_numbers_byte_for_byte(expected, written):
    assert written[expected.name].read_bytes() == expected.read_bytes()


def test_no_table_or_figure_is_new_or_lost(written):
    assert written.keys() == {path.name for path in EXPECTED}
