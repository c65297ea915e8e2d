"""What the benchmarks say of themselves."""

from __future__ import annotations

import subprocess
import sys

import pytest

from jobs.benchmarks import registry
from jobs.benchmarks.benchmark import Figure


def settings(name, **keys):
    return {"benchmark": {"name": name, **keys}, "cache": "cold"}


@pytest.mark.parametrize(
    ("those", "figure"),
    [
        (settings("micro"), Figure("images_per_s", "images/s", "higher")),
        (settings("alexnet"), Figure("wall_s", "s", "lower")),
        (settings("baseline", access="write"), Figure("write_mb_per_s", "MB/s", "higher")),
        (settings("baseline", access="read"), Figure("read_mb_per_s", "MB/s", "higher")),
        (settings("baseline", access="random_read"), Figure("read_mb_per_s", "MB/s", "higher")),
    ],
)
def test_each_has_a_figure_of_merit(those, figure):
    assert registry.of(those).figure_of(those["benchmark"]) == figure


@pytest.mark.parametrize(
    ("those", "claimed"),
    [
        (settings("micro"), "cold"),
        (settings("alexnet", control="none"), "cold"),
        (settings("alexnet", control="no_io"), "as_is"),
        (settings("baseline", access="write"), "as_is"),
        (settings("baseline", access="read"), "cold"),
        (settings("baseline", access="random_read"), "cold"),
    ],
)
def test_what_reads_nothing_claims_nothing_of_the_page_cache(those, claimed):
    assert registry.of(those).claim(those) == claimed


@pytest.mark.parametrize("those", [settings("micro"), settings("alexnet")])
def test_the_spread_of_what_reads_images_is_that_of_images_per_second(those):
    assert registry.of(those).rate_of(those["benchmark"]).key == "images_per_s"


def test_finding_the_benchmarks_imports_nothing_slow():
    script = (
        "import sys; from jobs.benchmarks import registry; registry.benchmarks()\n"
        "print({'tensorflow', 'numpy', 'PIL'} & sys.modules.keys())"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"
