"""What is said of NERSC's claims, each by cells of which the answer is known."""

import pytest

from analysis.verdicts import nersc_claims as nersc
from tests.analysis.claims_factory import checklist, told
from tests.analysis.nersc_factory import climate, hepcnn
from tests.analysis.record_factory import record


def test_global_shuffling_that_reads_longer_holds_with_what_was_in_memory_beside_it():
    more, foreseen = (
        told(claim, hepcnn(4, "local", 8), hepcnn(4, "global", 24)) for claim in (nersc.MORE, nersc.BY_MEMORY)
    )

    assert (more["verdict"], more["ours"]) == ("holds", pytest.approx(11.2 / 6.4))
    assert "not in memory at 4: 8 of 40 files locally, 24 of 40 files globally" in more["why"]
    assert (foreseen["verdict"], foreseen["ours"]) == ("holds", pytest.approx(1.0))


def test_of_several_numbers_of_nodes_the_weakest_counts_and_each_is_told_fewest_first():
    colds = {4: 24, 2: 9, 1: 40}
    made = [hepcnn(n, how, cold) for n, many in colds.items() for how, cold in (("local", 8), ("global", many))]

    row = told(nersc.MORE, *made)

    assert row["ours"] == pytest.approx((9 * 0.4 + 31 * 0.1) / (8 * 0.4 + 32 * 0.1))
    assert row["why"].startswith(
        "2 nodes 1.05 times; 4 nodes 1.75 times; not in memory at 2: 8 of 40 files locally, 9 of"
    )
    assert told(nersc.BY_MEMORY, *made)["why"] == "predicted / read: 2 nodes 1.00, 4 nodes 1.00"


def test_what_memory_does_not_explain_differs_from_the_prediction():
    row = told(nersc.BY_MEMORY, hepcnn(4, "local", 8), hepcnn(4, "global", 24, slower=1.3))

    assert row["verdict"] == "differs"


@pytest.mark.parametrize("claim", [nersc.MORE, nersc.BY_MEMORY], ids=["more", "by memory"])
def test_nodes_that_share_a_page_cache_show_nothing_of_global_shuffling(claim):
    row = told(claim, hepcnn(4, "local", 8, private=0), hepcnn(4, "global", 8, private=0))

    assert row["verdict"] == "not comparable"
    assert row["why"].startswith("these nodes share a page cache")


def test_nothing_is_foreseen_from_loads_of_which_no_source_is_known():
    records = hepcnn(4, "local", 8), hepcnn(4, "global", 24)
    for made in records:
        for run in made["runs"]:
            run |= {f"{name}_loads": 0 for name in nersc.LOADS}

    assert told(nersc.BY_MEMORY, *records)["verdict"] == "not measured"
    assert "not in memory at 4: unknown locally, unknown globally" in told(nersc.MORE, *records)["why"]


@pytest.mark.parametrize("claim", [nersc.SHARE["hepcnn"], nersc.TRAINING["hepcnn"]], ids=["share", "training"])
@pytest.mark.parametrize(("slower", "verdict"), [(4.0, "holds"), (0.5, "differs")])
def test_the_share_of_io_grows_where_training_gains_more_from_nodes_than_reading(claim, slower, verdict):
    row = told(claim, hepcnn(1, "local", 8), hepcnn(4, "local", 8, slower=slower))

    assert row["verdict"] == verdict
    assert "weakest from 1 to 4 nodes" in row["why"]


@pytest.mark.parametrize(("words", "first", "second"), [("threads", 1, 4), ("sync", "barrier", "allreduce")])
def test_nodes_are_compared_where_threads_and_the_meeting_of_ranks_are_alike(words, first, second):
    several = [climate(65, load_s, nodes=4, **{words: how}) for how, load_s in ((first, 2.0), (second, 0.2))]
    one = [climate(65, 0.5, nodes=1, **({words: how} if words == "threads" else {})) for how in (first, second)]
    rows = checklist(*several, *(one if words == "threads" else one[:1]))

    found = rows[rows["claim"] == nersc.SHARE["climate"].text].set_index("about")["verdict"]
    assert {about.rpartition(", ")[2]: each for about, each in found.items()} == {
        f"{words} {first}" if words == "threads" else first: "holds",
        f"{words} {second}" if words == "threads" else second: "differs",
    }


def test_more_threads_on_one_node_say_nothing_of_nodes():
    row = told(nersc.SHARE["climate"], *(climate(65, load_s, nodes=1, threads=n) for n, load_s in ((1, 0.5), (4, 2.0))))

    assert row["verdict"] == "not measured"


@pytest.mark.parametrize(
    ("cold", "private", "verdict"), [(36, 1, "holds"), (24, 1, "differs"), (36, 0, "not comparable")]
)
def test_more_epochs_make_io_a_larger_share_where_they_read_more_of_the_storage(cold, private, verdict):
    few = hepcnn(4, "global", 30, epochs=2, private=private)
    many = hepcnn(4, "global", cold, epochs=5, private=private)
    beside = hepcnn(4, "local", 8, epochs=2), hepcnn(1, "global", 40, epochs=5)
    row = told(nersc.WITH_EPOCHS, few, many, *beside)

    assert row["verdict"] == verdict
    assert row["about"].endswith("4 nodes")
    assert f"not in memory with 5: {cold} of 40 files" in row["why"]


@pytest.mark.parametrize(("load_s", "verdict"), [(2.5, "holds"), (1.5, "differs")])
def test_a_larger_data_set_makes_io_a_larger_share_where_it_waits_longer_in_as_long_a_run(load_s, verdict):
    records = climate(65, 1.6), climate(129, load_s), hepcnn(1, "local", 8)
    row = told(nersc.WITH_DATA, *records)

    assert (row["verdict"], row["ours"]) == (verdict, pytest.approx(load_s / 1.6))
    assert f"65 to 129 files {load_s / 1.6:.2f}" in row["why"]
    assert told(nersc.WITH_EPOCHS, *records)["verdict"] == "not measured"


def test_as_many_steps_of_any_data_set_show_nothing_of_a_larger_one():
    row = told(nersc.WITH_DATA, climate(65, 1.6, iterations=8), climate(129, 2.5, iterations=8))

    assert row["verdict"] == "not comparable"
    assert row["why"].startswith("iterations is set")


def test_nerscs_claims_are_told_of_where_anything_of_theirs_was_measured():
    plain, one = (set(checklist(made)["claim"]) for made in (record([100]), hepcnn(1, "local", 8)))

    assert plain.isdisjoint(claim.text for claim in nersc.CLAIMS)
    assert nersc.MORE.text in one
    assert nersc.SHARE["climate"].text not in one
