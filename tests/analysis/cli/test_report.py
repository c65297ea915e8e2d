import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from analysis.__main__ import main
from analysis.errors import AnalysisError
from analysis.figures.kit import save
from analysis.statistics.comparable import CURE_OF_LOOSER
from analysis.text.plain import DASH
from tests.analysis.baseline_records import baseline, given
from tests.analysis.record_factory import check, disturbed, id_of, record, run, store, unstable
from tests.analysis.training_factory import grid, training

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


@pytest.mark.long
def test_a_reader_that_stops_early_ends_it_quietly(campaign):
    command = f"{sys.executable} -m analysis {campaign} | true; exit ${{PIPESTATUS[0]}}"

    done = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, cwd=ROOT, check=False)  # noqa: S603, RUF100

    assert (done.returncode, done.stderr) == (0, "")


def test_the_summary_names_medians_scaling_the_paper_and_the_files_and_piped_is_plain(campaign, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)

    assert main([str(campaign)]) == 0

    out = capsys.readouterr().out
    assert [told for told in ("local          2       190", "1.90", "paper's lustre", "7.80") if told not in out] == []
    assert str(campaign / "figures" / "fig4.pdf") in out.splitlines()
    assert not [sign for sign in "\x1b…│─┃━" if sign in out]
    assert max(len(line) for line in out.splitlines() if not line.startswith("/")) <= 120
    assert all(path.name[-10:] in out for path in (campaign / "records").iterdir())


@pytest.mark.parametrize("columns", ["80", "120"])
def test_no_figure_or_cell_is_cut_at_any_usual_width(tmp_path, capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    long = "cold: 99.00 % of the pages were in memory before the start, and much more is to be said about it"
    bad = [run(n, 1e6, status="invalid", reason=long, checks=[check("cold", passed=False)]) for n in (1, 2)]
    made = [record([20481.5, 20590.5, 20700.5], storage="nvme-scratch"), record([*bad, 5e4], storage="ssd")]
    made += [*grid(("nvme-scratch",)), training([60.0] * 3, control="no_io", storage="nvme-scratch")]
    store(tmp_path, *made)

    main([str(tmp_path)])

    out = capsys.readouterr().out
    assert max(len(line) for line in out.splitlines() if not line.startswith("/")) <= int(columns)
    assert all(id_of(each)[-10:] in out for each in made)
    assert "20482\N{EN DASH}20700" in out
    assert "2 measured runs invalid" in out
    assert "runtime" in out
    assert "…" not in out


def test_the_name_of_a_storage_stands_on_one_line_beside_a_remark(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    loud = [run(n, 1e6, status="invalid", checks=[check("quiet", passed=False)]) for n in (1, 2)]
    store(tmp_path, record(loud, storage="optane (emulated)"))

    main([str(tmp_path)])

    assert "optane (emulated)" in capsys.readouterr().out


def test_every_cell_that_did_not_count_is_listed_with_its_reason(tmp_path, capsys):
    bad = record([run(1, 1.0, status="failed", reason="killed by signal 9\n(SIGKILL)")], threads=8)
    bad |= {"status": "failed", "reason": "no measured run is valid"}
    store(tmp_path, record([1.0]), bad)

    main([str(tmp_path)])

    out, err = capsys.readouterr()
    assert f"{id_of(bad)[-10:]}  cell failed: no measured run is valid\n" in out
    assert "1 measured run failed: killed by signal 9 (SIGKILL)\n" in out
    assert f"fig4 does not show {id_of(bad)}: failed" in err
    assert "killed by signal 9 (SIGKILL)" in (tmp_path / "tables" / "medians.md").read_text(encoding="utf-8")


def test_a_reason_that_many_cells_have_is_one_line_with_their_number(tmp_path, capsys):
    why = "Slurm: CANCELLED by `python -m campaign cancel`"
    store(tmp_path, *(record([1.0], threads=n) | {"status": "running", "reason": why} for n in range(1, 31)))

    main([str(tmp_path)])

    (line,) = [line for line in capsys.readouterr().out.splitlines() if why in line]
    assert " and 29 more  cell unfinished: " in line


def test_a_reason_that_a_cell_shares_with_its_runs_is_listed_once(tmp_path, capsys):
    loud = [run(n, 1.0, status="invalid", reason=f"quiet: others moved {n}.0 MB/s") for n in (1, 2)]
    cold = run(3, 1.0, status="invalid", reason="cold: 99 %")
    bad = record([*loud, cold]) | {"status": "invalid"}
    bad["reason"] = "0 of 3 measured runs valid, 3 needed; quiet: others moved 1.0 MB/s"
    store(tmp_path, bad)

    main([str(tmp_path)])

    cell = f"- `{id_of(bad)}`: "
    text = (tmp_path / "tables" / "medians.md").read_text(encoding="utf-8")
    assert [line.removeprefix(cell) for line in text.splitlines() if line.startswith(cell)] == [
        f"cell invalid: {bad['reason']} (2 measured runs invalid)",
        "1 measured run invalid: cold: 99 %",
    ]
    note = "note: no figure is drawn: Figs 4 and 5 need a done cell of micro"
    assert note in capsys.readouterr().err.splitlines()


def test_an_unstable_cell_is_marked_in_the_summary_and_in_the_markdown(tmp_path, capsys):
    store(tmp_path, unstable(record([100.0, 150.0])))

    main([str(tmp_path)])

    assert "125†" in capsys.readouterr().out
    assert "125 †" in (tmp_path / "tables" / "medians.md").read_text(encoding="utf-8")


def test_figures_of_runs_that_others_spoiled_are_shown_grey_and_marked_and_nothing_rests_on_them(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("analysis.output.terminal._console", lambda: Console(force_terminal=True, width=160))
    store(tmp_path, record([100.0], threads=1), disturbed(151.25, 171.75, threads=2))

    main([str(tmp_path)])

    (shown,) = (line for line in capsys.readouterr().out.splitlines() if "162‡" in line)
    assert "\x1b[90m" in shown
    assert f"151{DASH}172" in shown
    text = (tmp_path / "tables" / "medians.md").read_text(encoding="utf-8")
    assert "| 162 ‡ |" in text
    assert "‡ disturbed: others kept the machine busy" in text
    assert '<span class="disturbed">162 ‡</span>' in (tmp_path / "report.html").read_text(encoding="utf-8")
    numbers = (tmp_path / "tables" / "medians.csv").read_text() + (tmp_path / "tables" / "verdicts.csv").read_text()
    drawn = (tmp_path / "figures" / "fig4.csv").read_text()
    assert not [number for number in ("161.5", "151.25", "171.75") if number in numbers + drawn]


def test_a_baseline_that_others_spoiled_is_shown_and_marked(tmp_path, capsys):
    loud = {"status": "invalid", "reason": "quiet: others", "checks": [check("quiet", passed=False)]}
    bad = baseline([given(n, rate, "write", **loud) for n, rate in ((1, 31.0), (2, 33.0))], "write")
    store(tmp_path, bad | {"status": "invalid", "reason": "quiet"})

    main([str(tmp_path)])

    assert re.search(rf"32\.0‡ +31\.0{DASH}33\.0", capsys.readouterr().out)


def test_cells_that_were_judged_by_looser_checks_are_said_below_their_medians_with_the_cure(tmp_path, capsys):
    loose = record([100.0, 101.0, 102.0]) | {"looser_checks": ["checks.resident_max=1 (the site's: 0.01)"]}
    store(tmp_path, loose, record([50.0, 51.0, 52.0], threads=1))

    main([str(tmp_path)])

    said = (
        "1 of 2 cells judged by looser checks than the site's: checks.resident_max=1 (the site's: 0.01); not compared"
    )
    told = {
        "terminal": " ".join(capsys.readouterr().out.split()),
        "Markdown": (tmp_path / "tables" / "medians.md").read_text(encoding="utf-8"),
        "page": html.unescape((tmp_path / "report.html").read_text(encoding="utf-8")),
    }
    assert [where for where, text in told.items() if text.count(f"{said} with others; {CURE_OF_LOOSER}") != 1] == []
    assert "<p>judged by looser checks" in told["page"]


def test_a_figure_that_the_records_no_longer_give_is_removed_and_named_and_that_of_others_stays(campaign, capsys):
    main([str(campaign)])
    (campaign / "figures" / "fig4-mine.png").write_bytes(b"mine")
    store(campaign, record([1.0, 2.0, 3.0], cache="warm"))

    main([str(campaign)])

    figures = sorted(path.name for path in (campaign / "figures").glob("fig4*.pdf"))
    assert "fig4.pdf" not in figures
    assert len(figures) == 2
    assert "removed figures that the records no longer give: fig4.csv, fig4.pdf, fig4.png" in capsys.readouterr().err
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


@pytest.mark.parametrize("verb", ["", "compare", "verdicts"])
@pytest.mark.parametrize("word", ["--help", "--version"])
def test_help_and_version_load_neither_pandas_nor_matplotlib(verb, word):
    absent = "import sys; sys.modules |= dict.fromkeys(('pandas', 'matplotlib', 'rich'))"
    code = f"{absent}; import analysis.__main__ as m; m.main()"
    words = [*filter(None, [verb]), word]

    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=ROOT, check=True)

    assert f"python -m analysis {verb}".strip() in done.stdout


@pytest.mark.long
def test_a_closed_standard_output_keeps_no_file_from_being_written(tmp_path):
    folder = store(tmp_path, record([100.0]))

    done = subprocess.run(
        ["sh", "-c", 'exec "$0" -m analysis "$1" >&-', sys.executable, folder],
        stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert (folder / "tables" / "medians.csv").exists()


def test_what_is_no_file_is_not_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(AnalysisError, match="is there and is no file"):
        save.write(tmp_path / "pipe", b"x")

    assert (tmp_path / "pipe").is_fifo()


def test_a_closed_stderr_hides_no_fault(tmp_path):
    command = f"exec {sys.executable} -m analysis verdicts {tmp_path} 2>&-"

    done = subprocess.run(["/bin/sh", "-c", command], check=False, stdout=subprocess.PIPE)

    assert done.returncode == 2
