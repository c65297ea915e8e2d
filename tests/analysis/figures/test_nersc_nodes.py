"""NERSC's figures: what is drawn is what the records and the time logs hold."""

import pytest

from analysis.claims.nersc2018 import published_rate
from analysis.records.frame import rows_of
from jobs.events import TimeLog
from tests.analysis.nersc_factory import hepcnn
from tests.analysis.record_factory import id_of
from tests.analysis.training_factory import figures_of

# NERSC 2018. Seconds of HDF5 reads a node by nodes (`sum_per_rank`), shuffled locally and globally.
READ_S = {
    64: (91.21, 222.14), 128: (41.87, 110.23), 256: (20.71, 61.22), 512: (10.16, 30.13), 1024: (2.54, 2.63),
}  # fmt: skip
# Their GB/s take this many reads of training files, whatever was read, and all others as of validation files.
TRAINING_READS = 1024
TRAINING_BYTES, VALIDATION_BYTES = 426_908_752, 56_600_032


def test_rates_are_those_of_the_time_logs_of_all_ranks(tmp_path):
    several = hepcnn(2, "local", 8, dataset__train_files=4, dataset__samples=16, dataset__image_size=8)
    folder = tmp_path / "records" / id_of(several)
    folder.mkdir(parents=True)
    for rank, name in enumerate(("timelog-3.timelog", "timelog-3-rank1.timelog")):
        with TimeLog(folder / name, rank=rank, ranks=2, run="timelog-3") as log:
            for _ in range(3):
                with log.event("read", "x.h5") as event:
                    event.size_bytes = 1_000_000
    (folder / "timelog-31.timelog").write_text("of another run")

    made = figures_of(several, folder=tmp_path)

    (row,) = rows_of(made["nersc-hepcnn-bandwidth"].frame)
    assert row["status"] == "done"
    seconds = 6.0 / row["sum_per_rank"]  # of both ranks, over two: 6 MB in all
    assert row["union_all"] == pytest.approx(6.0 / seconds / 2, rel=0.05)  # one after the other
    assert row["wall"] == pytest.approx(6.0 / several["runs"][-1]["wall_s"])  # not that of the logs, which last longer
    sizes = 16 * 4 * (3 * 64 + 4), 2 * 4 * (3 * 64 + 4)
    assert row["published"] == pytest.approx((4 * sizes[0] + 2 * sizes[1]) / seconds / 1e6)
    made["nersc-hepcnn-bandwidth"].drawn()


def test_published_read_times_shrink_as_nodes_grow():
    """Of a run that reads as many files by any number of nodes, the seconds of all nodes together are alike."""
    together = [[number * seconds for seconds in READ_S[number]] for number in (64, 128, 256, 512)]

    assert [1024, *READ_S] == [1024, 64, 128, 256, 512, 1024]
    for of_one in zip(*together, strict=True):
        assert max(of_one) < 1.15 * min(of_one)


@pytest.mark.parametrize(
    ("number", "reads", "published", "asked"), [(64, 9_280, 9.9e9, 26.5e9), (1024, 2_048, 192e9, 192e9)]
)
def test_the_published_formula_gives_the_published_rates_and_less_than_was_asked_for(number, reads, published, asked):
    """At 64 nodes 80 loads of each rank were of files for training, at 1,024 one."""
    sizes, read_s = (TRAINING_BYTES, VALIDATION_BYTES), READ_S[number][0]
    training = {64: 80, 1024: 1}[number] * number

    found = published_rate(reads, TRAINING_READS, sizes, read_s)

    assert found == pytest.approx(published, rel=0.02)
    assert published_rate(reads, training, sizes, read_s) == pytest.approx(asked, rel=0.02)
