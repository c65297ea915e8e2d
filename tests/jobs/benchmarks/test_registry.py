"""What the benchmarks say of themselves."""

import subprocess
import sys

import pytest

from jobs.benchmarks import registry
from jobs.benchmarks.benchmark import Figure


def settings(name, **keys):
    return {"benchmark": {"name": name, **keys}, "cache": "cold"}


@pytest.mark.parametrize(
    ("those", "figure", "claimed"),
    [
        (settings("micro"), Figure("images_per_s", "images/s", "higher"), "cold"),
        (settings("alexnet", control="none"), Figure("wall_s", "s", "lower"), "cold"),
        (settings("alexnet", control="no_io"), Figure("wall_s", "s", "lower"), "as_is"),
        (settings("climate", control="metadata"), Figure("wall_s", "s", "lower"), "as_is"),
        (settings("baseline", access="write"), Figure("write_mb_per_s", "MB/s", "higher"), "as_is"),
        (settings("baseline", access="read"), Figure("read_mb_per_s", "MB/s", "higher"), "cold"),
        (settings("baseline", access="random_read"), Figure("read_mb_per_s", "MB/s", "higher"), "cold"),
    ],
)
def test_each_has_a_figure_of_merit_and_what_reads_nothing_claims_nothing_of_the_page_cache(those, figure, claimed):
    benchmark = registry.of(those)

    assert (benchmark.figure_of(those["benchmark"]), benchmark.claim(those)) == (figure, claimed)


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
