"""Readers of HDF5 beside each other: a line for each over the calls at once, a panel a storage."""

from tests.analysis.record_factory import record, scattered
from tests.analysis.training_factory import drawn


def read_by(reader, rates, **settings):
    return [
        record(scattered(2 * rate), reader=reader, threads=threads, **settings)
        for threads, rate in zip((1, 2, 4), rates, strict=True)
    ]


def test_one_reader_alone_and_records_without_one_make_no_figure():
    assert drawn("readers", *read_by("offsets", (1, 2, 3))) == []
    assert drawn("readers", record([1, 2, 3])) == []
