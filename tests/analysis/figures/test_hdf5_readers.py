"""Readers of HDF5 beside each other: a line for each over the calls at once, a panel a storage."""

from analysis.text import DAGGER
from tests.analysis.record_factory import record, scattered, unstable
from tests.analysis.training_factory import drawn


def read_by(reader, rates, **settings):
    return [
        record(scattered(2 * rate), reader=reader, threads=threads, **settings)
        for threads, rate in zip((1, 2, 4), rates, strict=True)
    ]


def test_one_reader_alone_and_records_without_one_make_no_figure():
    assert drawn("readers", *read_by("offsets", (1, 2, 3))) == []
    assert drawn("readers", record([1, 2, 3])) == []


def test_panels_share_their_numbers_of_calls_even_where_a_storage_was_not_measured_at_all_of_them():
    hdd = [each for name in ("offsets", "h5py_pool") for each in read_by(name, (1, 2, 3), storage="hdd")]
    ssd = [each for name in ("offsets", "h5py_pool") for each in read_by(name, (4, 5, 6), storage="ssd")[1:]]

    panels = drawn("readers", *hdd, *ssd)[0].drawn().axes

    assert [[text.get_text() for text in axes.get_xticklabels()] for axes in panels] == [["1", "2", "4"]] * 2


def test_the_dagger_of_each_unstable_cell_is_at_its_own_marker():
    made = [unstable(each) for name in ("offsets", "h5py_pool", "h5py_shared") for each in read_by(name, (1, 1, 1))]

    (axes,) = drawn("readers", *made)[0].drawn().axes

    markers = sorted(x for line in axes.lines if line.get_marker() in {"D", "s", "^"} for x in line.get_xdata())
    assert len(set(markers)) == 9
    assert sorted(text.xy[0] for text in axes.texts if text.get_text() == DAGGER) == markers
