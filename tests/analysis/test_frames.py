"""The Python door, as a notebook uses it: the example of the document, units, records that cannot be read."""

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import analysis
from analysis.__main__ import main
from analysis.errors import AnalysisError
from tests.analysis.record_factory import disturbed, record, scattered, store

ROOT = Path(__file__).parents[2]


def test_the_example_of_the_document_runs_and_imports_no_tensorflow(tmp_path):
    store(
        tmp_path / "results", record(scattered(97.0), threads=1), record(scattered(190.0), threads=2), disturbed(151.0)
    )
    page = (ROOT / "docs/how-to/notebook.md").read_text(encoding="utf-8")
    example, _ = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    words = [sys.executable, "-c", f"{example}\nimport sys\nprint('tensorflow' in sys.modules)"]

    told = subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.splitlines()

    assert told[1].split()[1:4] == ["local", "2", "190.0"]
    assert told[2:4] == ["images/s", "{}"]
    assert "quiet" in told[5]
    assert told[-1] == "False"


def test_the_frames_are_those_of_the_files_and_metrics_have_units(tmp_path):
    store(tmp_path, record(scattered(97.0), threads=1))
    assert main([str(tmp_path), "--quiet"]) == 0

    for frame, name in ((analysis.load(tmp_path), "medians"), (analysis.runs(tmp_path), "runs")):
        written = pd.read_csv(tmp_path / f"tables/{name}.csv")
        assert list(frame) == list(written)
        assert frame["images_per_s"].tolist() == pytest.approx(written["images_per_s"].tolist())
        assert frame.attrs["units"]["images_per_s"] == "images/s"
    assert analysis.load(tmp_path).attrs["units"]["wall_s_max"] == "s"


def test_a_record_that_cannot_be_read_is_told_and_without_any_other_there_is_an_error(tmp_path):
    store(tmp_path, record(scattered(97.0), threads=1), record(scattered(99.0), threads=2))
    first, second = sorted(tmp_path.glob("records/*/record.json"))
    first.write_text("{", encoding="utf-8")

    cells = analysis.load(tmp_path)

    assert cells["cell"].tolist() == [second.parent.name]
    assert list(cells.attrs["skipped"]) == [str(first)]
    second.unlink()
    with pytest.raises(AnalysisError, match=r"none of the 1 records in .* can be read"):
        analysis.load(tmp_path)


def test_another_name_is_no_door():
    with pytest.raises(AttributeError, match="no attribute 'tensorflow'"):
        analysis.tensorflow  # noqa: B018
