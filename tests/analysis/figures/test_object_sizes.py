"""Objects beside files: a line for each storage over the mean size of what is read, a panel a number of calls."""

import pytest

from tests.analysis.record_factory import record, run, scattered
from tests.analysis.training_factory import drawn


def of_size(size, rate, *, threads=1, kind=None, engine="threads"):
    """A cell that reads `rate` MB/s in pieces of a size in bytes, objects where `kind` is s3."""
    runs = [run(number, one * 1e6 / size, size=size) for number, one in enumerate(scattered(rate), 1)]
    made = record(runs, threads=threads, storage="ceph" if kind else "disk", dataset__median_bytes=size)
    if kind:
        node = made["cell"]["settings"]["storage"]
        made["cell"]["settings"]["storage"] = {"name": node["name"], "kind": kind, "engine": engine}
        made["cell"]["id"] += f"-{engine}"
    return made


@pytest.mark.parametrize(("other", "comparable"), [(12_000, True), (112_000, False), (7, False)])
def test_other_data_of_one_size_are_not_comparable(other, comparable):
    records = [of_size(size, 10.0, kind=kind) for size in (12_000, 112_000) for kind in (None, "s3")]
    for made, data in zip(records, (12_000, other, 112_000, 112_000), strict=True):
        made["dataset"]["checksum"] = f"{data:064d}"

    (spec,) = drawn("objects", *records)

    assert ("Not comparable (mixed: datasets" in spec.caption) != comparable


@pytest.mark.parametrize(("kind", "which"), [(None, (12_000, 112_000)), ("s3", (12_000,))])
def test_files_alone_or_one_size_make_no_figure(kind, which):
    assert drawn("objects", *(of_size(size, 10.0, kind=kind) for size in which)) == []
