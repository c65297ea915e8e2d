"""Objects beside files: a line for each storage over the mean size of what is read, a panel a number of calls."""

import pytest

from analysis.figures import object_sizes
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


def test_each_storage_and_engine_has_a_line_over_the_sizes_and_each_number_of_calls_a_panel():
    records = [
        made
        for threads in (1, 4)
        for size, rate in ((12_000, 10.0), (112_000, 80.0), (19_000_000, 400.0))
        for made in (
            of_size(size, 2 * rate, threads=threads),
            of_size(size, rate, threads=threads, kind="s3"),
            of_size(size, rate / 2, threads=threads, kind="s3", engine="async"),
        )
    ]

    (spec,) = drawn("objects", *records)

    assert len(spec.frame) == len(records)
    found = spec.frame.set_index(["storage", "threads", "bytes_per_image"])["read_mb_per_s"]
    assert found["disk", 4, 112_000] == pytest.approx(2 * found["ceph (engine=threads)", 4, 112_000])
    panes = [axes for axes in spec.drawn().axes if axes.get_xscale() == "log"]
    assert [axes.get_title() for axes in panes] == ["1 call at once", "4 calls at once"]
    assert [text.get_text() for text in panes[0].get_xticklabels()] == ["12 kB", "112 kB", "19 MB"]
    assert "Not comparable" not in spec.caption  # other sizes are other data
    signs = {look.marker for look in object_sizes.LOOKS}
    assert [[len(line.get_xdata()) for line in axes.lines if line.get_marker() in signs] for axes in panes] == [
        [3] * 3
    ] * 2


def test_the_unit_of_a_size_is_that_of_what_is_written():
    said = {900: "0.9 kB", 12_345: "12.3 kB", 999_700: "1 MB", 19_000_000: "19 MB", 999_900_000: "1 GB",
            3_500_000_000: "3.5 GB"}  # fmt: skip
    (spec,) = drawn("objects", *(of_size(size, size / 100, kind="s3") for size in said))

    axes = next(axes for axes in spec.drawn().axes if axes.get_xscale() == "log")
    assert [text.get_text() for text in axes.get_xticklabels()] == [*said.values()]


@pytest.mark.parametrize(("factor", "named"), [(2, True), (1.9, False)])
def test_sizes_are_named_where_their_names_do_not_overlap(factor, named):
    (spec,) = drawn("objects", *(of_size(int(size * 10_000), 9.0, kind="s3") for size in (1, factor)))

    ticks = spec.drawn().axes[0].get_xticks().tolist()

    assert (ticks == [10_000, 20_000]) is named


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
