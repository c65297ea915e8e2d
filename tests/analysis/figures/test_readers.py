"""Readers of HDF5 beside each other: a line for each over the calls at once, a panel a storage."""

from analysis.figures import readers
from tests.analysis.record_factory import record, scattered
from tests.analysis.training_factory import drawn


def read_by(reader, rates, **settings):
    return [
        record(scattered(2 * rate), reader=reader, threads=threads, **settings)
        for threads, rate in zip((1, 2, 4), rates, strict=True)
    ]


def test_each_reader_has_a_line_over_the_calls_at_once_and_each_storage_a_panel():
    records = [
        made
        for storage in ("hdd", "ssd")
        for reader, rates in (("offsets", (10, 20, 40)), ("h5py_threads", (10, 10, 10)))
        for made in read_by(reader, rates, storage=storage)
    ]

    (spec,) = drawn("readers", *records)

    assert spec.frame["reader"].tolist() == (["h5py_threads"] * 3 + ["offsets"] * 3) * 2
    first = spec.frame.set_index(["storage", "reader", "threads"])["read_mb_per_s"]
    assert first["hdd", "offsets", 4] == 4 * first["hdd", "h5py_threads", 4]
    figure = spec.drawn()
    panes = [axes for axes in figure.axes if axes.get_xlabel() == "calls at once (threads)"]
    lines = [line for line in panes[0].lines if line.get_marker() in {look.marker for look in readers.LOOKS.values()}]
    assert len(panes) == 2
    assert [line.get_ydata()[2] / line.get_ydata()[0] for line in lines] == [1, 4]


def test_one_reader_alone_and_records_without_one_make_no_figure():
    assert drawn("readers", *read_by("offsets", (1, 2, 3))) == []
    assert drawn("readers", record([1, 2, 3])) == []
