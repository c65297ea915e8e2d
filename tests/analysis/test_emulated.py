"""Whatever is shown of an emulated storage says so, and looks as that storage does."""

import re
from itertools import pairwise

import pytest

from analysis import paper
from analysis.__main__ import main
from analysis.cli import compare
from analysis.figures.kit import style
from tests.analysis.record_factory import record, rows_of, store
from tests.analysis.saving_factory import paper_like
from tests.analysis.training_factory import figures_of, grid, words

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("unrendered")]

BOUNDS = {"read_mb_per_s": 163.0, "write_mb_per_s": 133.14, "read_iops": 80, "write_iops": None}
WORDS = "163 MB/s read, 133.14 MB/s written, 80 reads/s"


def twin(made):
    """Return a record of which every storage was emulated, as the campaign writes it."""
    settings = made["cell"]["settings"]
    name = settings["checkpoint"]["name"] if "checkpoint" in settings else "none"
    sides = {"checkpoint.fast": "optane", "checkpoint.slow": "hdd"} if name == "burst_buffer" else {"checkpoint": name}
    places = {"storage": settings["storage"]["name"]} | ({} if name == "none" else sides)
    made["provenance"]["emulated"] = {key: {"name": each, **BOUNDS} for key, each in places.items()}
    return made


def scaling():
    rates = {"hdd": 1.0, "ssd": 2.0, "optane": 3.0, "lustre": 4.0}
    return [
        twin(record([100.0 * rate * n] * 3, storage=name, threads=n)) for name, rate in rates.items() for n in (1, 2)
    ]


def test_the_panels_of_fig_4_say_it_and_keep_the_papers_order_colours_and_ratios():
    spec = figures_of(*reversed(scaling()))["fig4"]
    figure = spec.drawn()
    real = figures_of(*(record([100.0] * 3, storage="hdd", threads=n) for n in (1, 2)))["fig4"].drawn()

    panels = [axes for axes in figure.axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == [
        f"{name} (emulated)" for name in ("hdd", "ssd", "optane", "lustre")
    ]
    assert panels[0].patches[0].get_facecolor() == real.axes[0].patches[0].get_facecolor()
    assert spec.frame["paper_ratio"].dropna().tolist() == [1.65]


def test_the_panels_titles_leave_each_other_room():
    made = scaling()
    for each in made:
        each["provenance"]["emulated"]["storage"]["model"] = {"kind": "disk"}
    figure = figures_of(*made)["fig4"].drawn()
    figure.draw_without_rendering()

    boxes = [axes.title.get_window_extent() for axes in figure.axes if axes.get_title()]
    assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


@pytest.mark.parametrize("label", ["hdd (emulated)", "HDD", "hdd (root=/x)", "hdd"])
def test_a_label_has_the_look_and_the_place_of_its_storage(label):
    assert style.look(label) == style.KNOWN["hdd"]
    assert paper.place(label)[0] == paper.place("hdd")[0] == 0


def test_the_targets_of_fig_9_say_it_in_the_papers_order():
    figure = figures_of(*(twin(made) for made in reversed(paper_like())))["fig9"].drawn()

    labels = [" ".join(label.get_text().split()) for label in figure.axes[1].get_xticklabels()]
    assert labels == [
        "hdd (emulated)",
        "ssd (emulated)",
        "optane (emulated)",
        "burst buffer, optane (emulated) to hdd (emulated)",
    ]
    assert any("images on ssd (emulated)." in " ".join(word.split()) for word in words(figure))


def test_of_a_model_every_place_says_that_it_is_one(tmp_path, capsys):
    made = scaling()
    for each in made:
        each["provenance"]["emulated"]["storage"]["model"] = {"kind": "disk", "queue": 32, "rotation_ms": 8.33}
    folder = store(tmp_path, *made)

    assert main([str(folder), "--junit", str(tmp_path / "verdicts.xml")]) == 0

    terminal = " ".join(capsys.readouterr().out.split())
    assert "hdd (emulated, model)" in terminal
    assert "differs (emulated (model): storage)" in terminal
    page = re.sub(r"<[^>]+>|\s+", " ", (folder / "report.html").read_text(encoding="utf-8"))
    assert f"hdd is a disk model, {WORDS}, queue 32, rotation_ms 8.33 (as storage), 2 of 8 cells." in page
    assert "emulated (model): " in page[: page.index("Measured")]
    assert 'classname="paper, emulated (model)"' in (tmp_path / "verdicts.xml").read_text(encoding="utf-8")


def test_every_text_of_a_report_says_it_wherever_it_names_a_storage(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")  # no heading is folded
    cells = [*scaling(), *map(twin, grid(storages=("hdd", "ssd"), threads=(1, 2))), *map(twin, paper_like())]
    folder = store(tmp_path, *cells)

    assert main([str(folder)]) == 0
    told = {path.name: path.read_text(encoding="utf-8") for path in (folder / "tables").glob("*.md")}
    terminal = capsys.readouterr().out
    evidence = " ".join(row["why"] for row in rows_of(folder / "tables/verdicts.csv"))  # the rest is the paper's words
    for text in (told["medians.md"], evidence, terminal.partition("paper's")[0]):
        text = " ".join(text.split())  # noqa: PLW2901 - a line may end between the two words
        named = list(re.finditer(r"(?<![-\w'])(hdd|ssd|optane|lustre)(?![-\w])", text))
        assert named
        assert [
            text[match.start() :][:40] for match in named if not text[match.end() :].startswith(" (emulated)")
        ] == []
    drawn = [row for name in ("tables/medians.csv", "figures/fig4.csv") for row in rows_of(folder / name)]
    assert {row["storage"].partition(" ")[2] for row in drawn} == {"(emulated)"}
    assert {"storage"} <= {word for row in rows_of(folder / "tables/runs.csv") for word in row["emulated"].split()}


def test_the_head_of_the_page_has_a_line_for_each_storage_whatever_it_was_used_for(tmp_path):
    hdd = [twin(record([100.0] * 3, storage="hdd", threads=n)) for n in (1, 2)]
    buffered = twin(paper_like()[-1])
    buffered["provenance"]["emulated"]["storage"] = {"name": "hdd", **BOUNDS}
    slower = twin(record([50.0] * 3, storage="hdd", threads=4))
    slower["provenance"]["emulated"]["storage"]["read_mb_per_s"] = 20.0
    unread = record([50.0] * 3, storage="hdd", threads=8)
    unread["provenance"]["emulated"] = {"storage": {"name": "unknown"}}
    folder = store(tmp_path, *hdd, buffered, slower, unread)
    main([str(folder), "--quiet"])

    page = (folder / "report.html").read_text(encoding="utf-8")

    assert sorted(re.findall(r"<li>([^<]* of 5 cells)\.<", page)) == [
        f"hdd, at most {WORDS} (as storage, slow side of the burst buffer), 3 of 5 cells",
        "hdd, at most 20 MB/s read, 133.14 MB/s written, 80 reads/s (as storage), 1 of 5 cells",
        f"optane, at most {WORDS} (as fast side of the burst buffer), 1 of 5 cells",
        "unknown, of unknown speed (as storage), 1 of 5 cells",
    ]


def test_a_real_storage_and_its_twin_are_two_curves():
    real = record([100.0] * 3, storage="hdd", threads=1)
    spec = figures_of(real, twin(record([200.0] * 3, storage="hdd", threads=2)))["fig4"]

    assert dict(zip(spec.frame["storage"], spec.frame["threads"], strict=True)) == {"hdd": 1, "hdd (emulated)": 2}
    assert spec.frame["scaling"].dropna().tolist() == [1.0]


def test_a_twin_is_compared_with_what_it_plays_and_named(tmp_path):
    before = store(tmp_path / "a", record([99.9, 100.0, 100.1], storage="hdd"))
    after = store(tmp_path / "b", twin(record([49.9, 50.0, 50.1], storage="hdd")))

    compare.main([str(before), str(after), "--out", str(tmp_path)])

    (row,) = rows_of(tmp_path / "comparison.csv")
    assert row["label"].startswith("hdd \N{RIGHTWARDS ARROW} hdd (emulated)")
    assert row["verdict"] == "slower"
