import os
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.__main__ import main

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
