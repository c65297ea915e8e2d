"""What is said of NERSC's claims, each by cells of which the answer is known."""

import pytest

from analysis.cli.measured import measured
from analysis.records.frame import rows_of
from analysis.verdicts import nersc
from tests.analysis.nersc_factory import climate, hepcnn
from tests.analysis.record_factory import record, store


def told(folder, *records):
    return {row["claim"]: row for row in rows_of(measured(store(folder, *records)).tested) if row["cells"]}


def test_global_shuffling_that_reads_longer_holds_with_what_was_in_memory_beside_it(tmp_path):
    found = told(tmp_path, hepcnn(4, "local", 8), hepcnn(4, "global", 24))

    more, foreseen = found[nersc.MORE.text], found[nersc.BY_MEMORY.text]
    assert (more["verdict"], more["ours"]) == ("holds", pytest.approx(11.2 / 6.4))
    assert "not in memory at 4: 8 of 40 files locally, 24 of 40 files globally" in more["why"]
    assert (foreseen["verdict"], foreseen["ours"]) == ("holds", pytest.approx(1.0))


def test_what_memory_does_not_explain_differs_from_the_prediction(tmp_path):
    found = told(tmp_path, hepcnn(4, "local", 8), hepcnn(4, "global", 24, slower=1.3))

    assert found[nersc.BY_MEMORY.text]["verdict"] == "differs"


def test_nodes_that_share_a_page_cache_show_nothing_of_global_shuffling(tmp_path):
    found = told(tmp_path, hepcnn(4, "local", 8, private=0), hepcnn(4, "global", 8, private=0))

    for claim in (nersc.MORE, nersc.BY_MEMORY):
        assert found[claim.text]["verdict"] == "not comparable"
        assert found[claim.text]["why"].startswith("these nodes share a page cache")


def test_nothing_is_foreseen_from_loads_of_which_no_source_is_known(tmp_path):
    records = hepcnn(4, "local", 8), hepcnn(4, "global", 24)
    for made in records:
        for run in made["runs"]:
            run |= {f"{name}_loads": 0 for name in nersc.LOADS}

    found = told(tmp_path, *records)

    assert nersc.BY_MEMORY.text not in found
    assert "not in memory at 4: unknown locally, unknown globally" in found[nersc.MORE.text]["why"]


@pytest.mark.parametrize(("slower", "verdict"), [(4.0, "holds"), (0.5, "differs")])
def test_the_share_of_io_grows_where_training_gains_more_from_nodes_than_reading(tmp_path, slower, verdict):
    found = told(tmp_path, hepcnn(1, "local", 8), hepcnn(4, "local", 8, slower=slower))

    assert found[nersc.SHARE["hepcnn"].text]["verdict"] == verdict
    assert found[nersc.TRAINING["hepcnn"].text]["verdict"] == verdict
    assert "weakest from 1 to 4 nodes" in found[nersc.SHARE["hepcnn"].text]["why"]


@pytest.mark.parametrize(
    ("cold", "private", "verdict"), [(36, 1, "holds"), (24, 1, "differs"), (36, 0, "not comparable")]
)
def test_more_epochs_make_io_a_larger_share_where_they_read_more_of_the_storage(tmp_path, cold, private, verdict):
    few = hepcnn(4, "global", 30, epochs=2, private=private)
    many = hepcnn(4, "global", cold, epochs=5, private=private)
    found = told(tmp_path, few, many, hepcnn(4, "local", 8, epochs=2), hepcnn(1, "global", 40, epochs=5))

    assert found[nersc.WITH_EPOCHS.text]["verdict"] == verdict
    assert found[nersc.WITH_EPOCHS.text]["about"].endswith("4 nodes")
    assert f"not in memory with 5: {cold} of 40 files" in found[nersc.WITH_EPOCHS.text]["why"]


@pytest.mark.parametrize(("load_s", "verdict"), [(2.5, "holds"), (1.5, "differs")])
def test_a_larger_data_set_makes_io_a_larger_share_where_it_waits_longer_in_as_long_a_run(tmp_path, load_s, verdict):
    found = told(tmp_path, climate(65, 1.6), climate(129, load_s), hepcnn(1, "local", 8))

    assert (found[nersc.WITH_DATA.text]["verdict"], found[nersc.WITH_DATA.text]["ours"]) == (
        verdict, pytest.approx(load_s / 1.6),
    )  # fmt: skip
    assert f"65 to 129 files {load_s / 1.6:.2f}" in found[nersc.WITH_DATA.text]["why"]
    assert nersc.WITH_EPOCHS.text not in found


def test_as_many_steps_of_any_data_set_show_nothing_of_a_larger_one(tmp_path):
    row = told(tmp_path, climate(65, 1.6, iterations=8), climate(129, 2.5, iterations=8))[nersc.WITH_DATA.text]

    assert row["verdict"] == "not comparable"
    assert row["why"].startswith("iterations is set")


def test_nerscs_claims_are_told_of_where_anything_of_theirs_was_measured(tmp_path):
    plain = {row["claim"] for row in rows_of(measured(store(tmp_path / "a", record([100]))).tested)}
    one = {row["claim"]: row for row in rows_of(measured(store(tmp_path / "b", hepcnn(1, "local", 8))).tested)}

    assert plain.isdisjoint(claim.text for claim in nersc.CLAIMS)
    assert one[nersc.MORE.text]["verdict"] == "not measured"
    assert nersc.SHARE["climate"].text not in one
