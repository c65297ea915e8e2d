"""Whatever is shown of an emulated storage says so, and looks as that storage does."""

import re

import pytest

from analysis import paper
from analysis.__main__ import main
from analysis.figures.kit import storage_colours
from tests.analysis.record_factory import record, rows_of, run, store
from tests.analysis.saving_factory import paper_like
from tests.analysis.training_factory import grid

pytestmark = pytest.mark.usefixtures("unrendered")

BOUNDS = {"read_mb_per_s": 163.0, "write_mb_per_s": 133.14, "read_iops": 80, "write_iops": None}
WORDS = "163 MB/s read, 133.14 MB/s written, 80 reads/s"


def twin(made):
    """Return a record of which every storage was emulated, as the campaign writes it."""
    settings = made["cell"]["settings"]
    name = settings["checkpoint"]["name"] if "checkpoint" in settings else "none"
    sides = {"checkpoint.fast": "optane", "checkpoint.slow": "hdd"} if name == "burst_buffer" else {"checkpoint": name}
    places = {"storage": settings["storage"]["name"]} | ({} if name == "none" else sides)
    made["runs"][0] = run(0, 1.0, role="warmup")  # no faster than the storage
    made["provenance"]["emulated"] = {key: {"name": each, **BOUNDS} for key, each in places.items()}
    return made


def scaling():
    rates = {"hdd": 1.0, "ssd": 2.0, "optane": 3.0, "lustre": 4.0}
    return [
        twin(record([100.0 * rate * n] * 3, storage=name, threads=n)) for name, rate in rates.items() for n in (1, 2)
    ]


@pytest.mark.parametrize("label", ["hdd (emulated)", "HDD", "hdd (root=/x)", "hdd"])
def test_a_label_has_the_look_and_the_place_of_its_storage(label):
    assert storage_colours.look_of_storage(label) == storage_colours.KNOWN["hdd"]
    assert paper.storage_sort_key(label)[0] == paper.storage_sort_key("hdd")[0] == 0


def test_of_a_model_every_place_says_that_it_is_one(tmp_path, capsys):
    made = scaling()
    for each in made:
        each["provenance"]["emulated"]["storage"]["model"] = {"kind": "disk", "queue": 32, "rotation_ms": 8.33}
    folder = store(tmp_path, *made)

    assert main([str(folder), "--junit", str(tmp_path / "verdicts.xml")]) == 0

    terminal = " ".join(capsys.readouterr().out.split())
    assert "; hdd, ssd, optane, lustre emulated by a model" in terminal
    assert "differs (emulated (model): storage)" in terminal
    page = re.sub(r"<[^>]+>|\s+", " ", (folder / "report.html").read_text(encoding="utf-8"))
    assert f"hdd is a disk model, {WORDS}, queue 32, rotation_ms 8.33 (as storage), 2 of 8 cells." in page
    assert "emulated (model): " in page[: page.index("Measured")]
    assert 'classname="paper, emulated (model)"' in (tmp_path / "verdicts.xml").read_text(encoding="utf-8")


STORAGES = re.compile(r"(?<![-\w'])(hdd|ssd|optane|lustre)(?![-\w])")


def test_every_table_of_a_report_says_it_in_its_heading_and_all_evidence_wherever_it_names_a_storage(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "300")  # no heading is folded
    cells = [*scaling(), *map(twin, grid(storages=("hdd", "ssd"), threads=(1, 2))), *map(twin, paper_like())]
    folder = store(tmp_path, *cells)

    assert main([str(folder)]) == 0
    told = {path.name: path.read_text(encoding="utf-8") for path in (folder / "tables").glob("*.md")}
    terminal = capsys.readouterr().out
    evidence = " ".join(row["why"] for row in rows_of(folder / "tables/verdicts.csv"))  # the rest is the paper's words
    assert [
        match for match in STORAGES.finditer(evidence) if not evidence[match.end() :].startswith(" (emulated)")
    ] == []
    for text in (told["medians.md"], terminal):
        headings = [line for line in text.splitlines() if line.startswith(("micro: ", "alexnet: ", "## "))]
        assert len(headings) == 2
        assert [
            line
            for line in headings
            if not re.search(r"; hdd, ssd, optane(, lustre)? emulated(; \d runs of each)?$", line)
        ] == []
    drawn = [row for name in ("tables/medians.csv", "figures/fig4.csv") for row in rows_of(folder / name)]
    assert {row["storage"].partition(" ")[2] for row in drawn} == {"(emulated)"}
    assert {"storage"} <= {word for row in rows_of(folder / "tables/runs.csv") for word in row["emulated"].split()}
