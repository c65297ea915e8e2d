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
    benchmark = registry.benchmark_of(those)

    assert (benchmark.figure_of(those["benchmark"]), benchmark.page_cache(those)) == (figure, claimed)


@pytest.mark.parametrize("those", [settings("micro"), settings("alexnet")])
def test_the_spread_of_what_reads_images_is_that_of_images_per_second(those):
    assert registry.benchmark_of(those).rate_of(those["benchmark"]).key == "images_per_s"


HEP = {"dataset.train_files": 4, "dataset.samples": 16, "benchmark.epochs": 3, "batch_size": 8, "nodes": 1}
CLIMATE = {
    "dataset.name": "c", "dataset.height": 64, "dataset.files": 32, "benchmark.channels": [0, 15], "iterations": None,
    "batch_size": 1, "benchmark.stage": None, "benchmark.control": "none", "accelerator.name": "emulated",
}  # fmt: skip
OWN = {key: value for key, value in CLIMATE.items() if key != "dataset.files"} | {"dataset.path": "/x"}
BASELINE = {"cache": "cold", "benchmark.access": "read", "benchmark.engine": "auto", "storage.kind": None}
S3 = BASELINE | {"storage.kind": "s3"}


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("hepcnn", {"dataset.name": "x"}, "does not train on dataset=x"),
        ("hepcnn", {"dataset.path": "/x", "benchmark.epochs": 1, "batch_size": 10**6}, None),
        ("hepcnn", HEP | {"nodes": 4}, None),
        ("hepcnn", HEP | {"nodes": 5}, "nodes=5: the data set has only 4 training files"),
        ("hepcnn", HEP | {"batch_size": 192}, None),
        ("hepcnn", HEP | {"batch_size": 193}, "batch_size=193 is more than the samples per node"),
        ("hepcnn", HEP | {"nodes": 3, "batch_size": 48}, None),
        ("hepcnn", HEP | {"nodes": 3, "batch_size": 49}, "batch_size=49"),
        ("climate", CLIMATE, None),
        ("climate", CLIMATE | {"dataset.median_bytes": 1}, "does not read dataset=c"),
        ("climate", {key: CLIMATE[key] for key in CLIMATE if key != "dataset.height"}, "does not read dataset=c"),
        *(("climate", CLIMATE | {"benchmark.channels": odd}, "no such channels") for odd in ([], [0, 16], [-1, 2])),
        ("climate", CLIMATE | {"benchmark.channels": None}, None),
        ("climate", OWN | {"benchmark.channels": [16, (1 << 31) - 1]}, None),
        ("climate", OWN | {"benchmark.channels": [1 << 31]}, "no such channels"),
        ("climate", OWN | {"accelerator.name": "cpu"}, "accelerator=cpu: your own files have no labels"),
        ("climate", OWN | {"accelerator.name": "cpu", "benchmark.control": "no_compute"}, None),
        ("climate", CLIMATE | {"benchmark.stage": "fast"}, "is no absolute path"),
        ("climate", CLIMATE | {"benchmark.stage": "/a\nb"}, "is no absolute path"),
        ("climate", CLIMATE | {"benchmark.stage": "/fast"}, None),
        (
            "climate",
            CLIMATE | {"benchmark.stage": "/fast", "benchmark.control": "no_io"},
            "reads no files, so no copies are needed",
        ),
        ("climate", CLIMATE | {"batch_size": 24}, None),
        ("climate", CLIMATE | {"batch_size": 25}, "dataset.files=32 make 0 batches"),
        ("climate", CLIMATE | {"nodes": 24}, None),
        ("climate", CLIMATE | {"nodes": 25}, "make 0 batches for training on 25 nodes"),
        ("climate", CLIMATE | {"batch_size": 5, "iterations": 4}, None),
        ("climate", CLIMATE | {"batch_size": 5, "iterations": 5}, "make 4 batches for training on 1 nodes"),
        ("baseline", BASELINE, None),
        ("baseline", BASELINE | {"cache": "warm"}, "bypasses the page cache"),
        ("baseline", BASELINE | {"benchmark.engine": "ior"}, None),
        ("baseline", BASELINE | {"benchmark.engine": "ior", "benchmark.access": "random_read"}, "IOR has no threads"),
        ("baseline", S3 | {"benchmark.engine": "fio"}, "benchmark.engine=fio cannot use objects"),
        *(("baseline", S3 | {"benchmark.engine": good}, None) for good in ("auto", "builtin")),
        ("baseline", S3 | {"storage.engine": "async"}, "by threads"),
        ("baseline", S3 | {"storage.engine": "threads"}, None),
    ],
)
def test_settings_that_are_legal_alone_and_impossible_together_are_refused_with_a_cure(name, values, said):
    refused = registry.benchmarks()[name].settings_error(values)

    assert (said in refused[0] and bool(refused[1])) if said else refused is None


@pytest.mark.parametrize(
    ("those", "acting", "idle", "words"),
    [
        (settings("baseline", access="read"), (), {"seconds_max"}, ["baseline", "read"]),
        (settings("baseline", access="write"), (), {"seconds_max"}, ["baseline", "write"]),
        (settings("baseline", access="random_read"), ("dataset", "threads", "seed"), {"transfer_mib"}, None),
        ({**settings("baseline", access="write"), "storage": {"kind": "s3"}}, ("threads",), {"seconds_max"}, None),
        ({**settings("baseline", access="read"), "storage": {"kind": "s3"}}, (), {"seconds_max"}, None),
        (settings("alexnet", optimizer="adam"), ("dataset", "threads", "seed"), set(), ["alexnet"]),
    ],
)
def test_what_acts_on_a_cell_follows_from_what_it_does(those, acting, idle, words):
    benchmark, node = (
        registry.benchmark_of(those),
        {**those["benchmark"], "seconds_max": 1, "transfer_mib": 1, "width": 1},
    )
    node = node if benchmark.name == "baseline" else those["benchmark"]

    found = benchmark.effective_settings(
        {"storage": {}, **dict.fromkeys(("dataset", "threads", "seed"), 1), **those, "benchmark": node}
    )
    own = ("benchmark", "storage", "cache", *acting)
    assert found.keys() == set(own)
    assert node.keys() - found["benchmark"].keys() == idle
    assert words is None or benchmark.id_words(node) == words


def test_finding_the_benchmarks_imports_nothing_slow():
    script = (
        "import sys; from jobs.benchmarks import registry; registry.benchmarks()\n"
        "print({'tensorflow', 'numpy', 'PIL'} & sys.modules.keys())"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"
