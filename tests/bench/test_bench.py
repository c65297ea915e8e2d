"""Every bench runs at its smallest size: what it builds on changes, and a bench is not asked for every day."""

import importlib
import json
import re

import pytest

from jobs.data.synthetic_images import ImageSpec
from tests.bench import __main__ as bench

# The others need devices, a cluster, TensorFlow several times.
SHORT = ("start", "planning", "trace_cost", "report", "time_log")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] * (name not in SHORT)) for name in bench.BENCHES]
)
def test_a_bench_gives_its_figures_as_lines_and_as_json(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(f"tests.bench.{name}")
    asked = {"photos": str(_photos(tmp_path))} if "photos" in module.SIZES["smoke"] else {}
    if lacking := bench.lacking(module, asked):
        pytest.skip(lacking)
    words = [word for key, value in asked.items() for word in (f"--{key}", value)]

    assert bench.main([name, "--size", "smoke", *words]) == 0

    said = capfd.readouterr()
    answer = json.loads(said.out.splitlines()[-1])
    assert answer["bench"] == name
    assert all(f"{figure['what']} " in said.out for figure in answer["figures"])
    assert not re.search("oneDNN|absl|tensorflow", said.err)


def _photos(folder):
    spec = ImageSpec(files=2, median_bytes=30_000, sigma=0.3, width=320, height=240, classes=1, seed=3)
    (folder / "photos").mkdir()
    for index, size in enumerate(spec.sizes()):
        (folder / "photos" / f"{index}.jpg").write_bytes(spec.content(index, int(size)))
    return folder / "photos"


def test_the_rows_of_a_bench_take_the_place_of_those_before(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "TABLE", tmp_path / "performance.md")
    row = {"what": "a thing", "text": "1.00 s", "goal": ""}
    bench.TABLE.write_text(f"before\n\n{bench.HEAD}\nafter\n")
    of = {"commit": "c", "machine": "m"}

    for name, text in (("report", "1 s"), ("start", "2 s"), ("report", "3 s")):
        bench.write({"bench": name, "figures": [{**row, "text": text}], **of})

    rows = ["| start | a thing | 2 s |  | c | m |\n", "| report | a thing | 3 s |  | c | m |\n"]
    assert bench.TABLE.read_text() == "before\n\n" + bench.HEAD + "".join(rows) + "\nafter\n"


def test_a_bench_that_cannot_run_here_says_what_it_lacks(capsys):
    assert bench.main(["photographs", "--size", "smoke"]) == 1
    assert capsys.readouterr().out == "photographs: needs --photos FOLDER\n"
