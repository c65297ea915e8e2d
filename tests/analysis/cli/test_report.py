import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from analysis.__main__ import main
from tests.analysis.record_factory import disturbed, record, rows_of, store

pytestmark = pytest.mark.usefixtures("unrendered")  # but where the analysis is a process of its own
ROOT = Path(__file__).parents[3]
BARE = """
import runpy, sys

class Absent:
    names = {"tensorflow", "keras", "hydra", "omegaconf", "submitit", "campaign", "conf"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, Absent())
sys.argv[0] = "analysis"
runpy.run_module("analysis", run_name="__main__", alter_sys=True)
"""


def bare(*words, **environment):
    """Run the analysis in a fresh Python in which none of the campaign's dependencies can be imported."""
    words = [sys.executable, "-W", "error", "-c", BARE, *map(str, words)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(words, capture_output=True, text=True, env=environment, check=False, timeout=60)


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_it_runs_without_tensorflow_and_hydra_and_gives_the_same_bytes_each_time(campaign, tmp_path):
    done = [bare(campaign, "--out", tmp_path / seed, PYTHONHASHSEED=seed) for seed in ("1", "2")]

    assert [(each.returncode, each.stderr) for each in done] == [(0, "")] * 2
    assert list(contents(tmp_path / "1")) == [
        ".written-by-analysis", "fig4.csv", "fig4.pdf", "fig4.png", "report.html", "medians.csv",
        "medians.md", "runs.csv", "verdicts.csv", "verdicts.md",
    ]  # fmt: skip
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    pdf = contents(tmp_path / "1")["fig4.pdf"]
    assert [each in pdf for each in (b"/CIDFontType2", b"/Type3", b"CreationDate")] == [True, False, False]


def test_the_summary_names_medians_scaling_the_paper_and_the_files_and_piped_is_plain(campaign, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)

    assert main([str(campaign)]) == 0

    out = capsys.readouterr().out
    assert [told for told in ("190 \N{PLUS-MINUS SIGN} ", "1.90", "paper's lustre", "7.80") if told not in out] == []
    assert str(campaign / "figures" / "fig4.pdf") in out.splitlines()
    assert not [sign for sign in "\x1b…│─┃━" if sign in out]
    assert max(len(line) for line in out.splitlines() if not line.startswith("/")) <= 120
    assert all(path.name[-10:] in out for path in (campaign / "records").iterdir())


def test_a_figure_that_the_records_no_longer_give_is_removed_and_named_and_that_of_others_stays(campaign, capsys):
    main([str(campaign)])
    (campaign / "figures" / "fig4-mine.png").write_bytes(b"mine")
    store(campaign, record([1.0, 2.0, 3.0], cache="warm"))

    main([str(campaign)])

    figures = sorted(path.name for path in (campaign / "figures").glob("fig4*.pdf"))
    assert "fig4.pdf" not in figures
    assert len(figures) == 2
    said = capsys.readouterr().err
    assert "removed old figures, which are not made from the present records: fig4.csv, fig4.pdf, fig4.png" in said
    assert (campaign / "figures" / "fig4-mine.png").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["results", "long name " * 12])
def test_quiet_prints_the_paths_alone_each_on_one_line(name, campaign, capsys):
    campaign = campaign.rename(campaign.with_name(name.strip()))

    main([str(campaign), "--quiet"])

    out, err = capsys.readouterr()
    assert [Path(line).exists() for line in out.splitlines()] == [True] * 9
    assert err == ""


@pytest.mark.usefixtures("campaign")
@pytest.mark.parametrize(
    ("words", "hint"), [(["none"], "campaign folder"), (["."], "records/"), (["results", "--out", "file"], "--out DIR")]
)
def test_wrong_usage_and_a_place_that_cannot_be_written_are_errors_with_a_hint(
    words, hint, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("", encoding="utf-8")

    assert main(words) == 2

    error, _, cure = capsys.readouterr().err.partition("\n\nhint: ")
    assert error.startswith("error: ")
    assert hint in cure


def test_words_are_not_shortened(campaign, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([str(campaign), "--qui"])

    assert capsys.readouterr().err == "error: unknown flag '--qui'\n\nhint: did you mean '--quiet'?\n"


def test_nothing_rests_on_runs_that_others_spoiled_which_are_shown_grey(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("analysis.output.terminal._console", lambda: Console(force_terminal=True, width=160))
    store(tmp_path, record([100.0], threads=1), disturbed(151.25, 171.75, threads=2))

    assert main([str(tmp_path)]) == 0

    (shown,) = (line for line in capsys.readouterr().out.splitlines() if "6.3 %\N{DOUBLE DAGGER}" in line)
    assert "\x1b[90m" in shown
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert '<span class="disturbed">162 \N{PLUS-MINUS SIGN} 6.3 % \N{DOUBLE DAGGER}</span>' in page
    numbers = "".join(
        (tmp_path / name).read_text() for name in ("tables/medians.csv", "tables/verdicts.csv", "figures/fig4.csv")
    )
    assert not [number for number in ("161.5", "151.25", "171.75") if number in numbers]


def test_the_files_of_numbers_have_a_row_a_cell_and_a_run_and_no_column_of_ours_alone(campaign):
    main([str(campaign), "--quiet"])

    cells, runs = (rows_of(campaign / "tables" / name) for name in ("medians.csv", "runs.csv"))
    assert {row["threads"]: row["images_per_s"] for row in cells} == {
        "1": "100.0",
        "2": "190.0",
        "4": "350.0",
        "8": "400.0",
    }
    assert [row["images_per_s"] for row in runs if row["threads"] == "2"] == ["99999.0", "185.0", "190.0", "195.0"]
    assert set(cells[0]) & {"series_key", "set_key", "looser_checks", "conditions", "no_scaling", "disturbed"} == set()
    assert {"storage", "scaling", "wall_s_max", "checks", "spread"} <= set(cells[0])


@pytest.mark.parametrize("verb", ["", "compare", "trace", "verdicts"])
def test_help_loads_neither_pandas_nor_matplotlib(verb):
    absent = "import sys; sys.modules |= dict.fromkeys(('pandas', 'matplotlib', 'rich'))"
    words = [
        sys.executable,
        "-c",
        f"{absent}; import analysis.__main__ as m; m.main()",
        *filter(None, [verb]),
        "--help",
    ]

    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=True)

    assert f" {verb} ".rstrip() in done.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("shell", "code"),
    [("python -m analysis A | true; exit ${PIPESTATUS[0]}", 0), ("python -m analysis A >&-", 0),
     ("python -m analysis verdicts . 2>&-", 2)],
)  # fmt: skip
def test_a_reader_that_stops_or_was_never_there_hides_no_fault_and_keeps_no_file_from_being_written(
    campaign, shell, code
):
    command = shell.replace("python", sys.executable).replace(" A", f" {campaign}")

    done = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, cwd=ROOT, check=False)

    assert (done.returncode, done.stderr) == (code, "")
    assert (campaign / "tables" / "medians.csv").exists() is (code == 0)
