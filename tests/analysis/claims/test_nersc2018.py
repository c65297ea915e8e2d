"""What is said of NERSC's claims, each by cells of which the answer is known."""

import pytest

from analysis.claims import nersc2018 as nersc
from tests.analysis.claims_factory import checklist, told
from tests.analysis.nersc_factory import climate, hepcnn
from tests.analysis.record_factory import record


def shuffled(cold=24, nodes=4, **settings):
    """Return a cell with local and one with global shuffling, of whose 40 loads 8 and so many are from the storage."""
    return [hepcnn(nodes, "local", 8, **{**settings, "slower": 1.0}), hepcnn(nodes, "global", cold, **settings)]


def unknown():
    """Return cells of whose loads nobody knows where they came from."""
    records = shuffled()
    for run in (run for made in records for run in made["runs"]):
        run |= {f"{name}_loads": 0 for name in nersc.LOADS}
    return records


def epochs(cold, private=1):
    """Return cells of two numbers of epochs on four nodes, of whose 40 loads 30 and so many are from the storage."""
    pair = [hepcnn(4, "global", n, epochs=k, private=private) for k, n in ((2, 30), (5, cold))]
    return [*pair, hepcnn(4, "local", 8, epochs=2), hepcnn(1, "global", 40, epochs=5)]


def data(load_s, **settings):
    return [climate(65, 1.6, **settings), climate(129, load_s, **settings)]


def scaled(slower, shuffle="local", private=1):
    return [hepcnn(1, shuffle, 8), hepcnn(4, shuffle, 8, slower=slower, private=private)]


SEVERAL = [each for nodes, cold in ((4, 24), (2, 9), (1, 40)) for each in shuffled(cold, nodes)]
ONE_NODE = [climate(65, load_s, nodes=1, threads=n) for n, load_s in ((1, 0.5), (4, 2.0))]
HEPCNN, CDB = "hepcnn", "climate"


@pytest.mark.parametrize(
    ("claim", "made", "verdict", "ours", "why"),
    [
        (nersc.SLOWER_WITH_GLOBAL_SHUFFLE, shuffled(), "holds", 11.2 / 6.4,
         "4 nodes 1.75 times; not in memory at 4: 8 of 40 files locally, 24 of 40 files globally"),
        # Of several numbers of nodes the weakest counts, and each is told, fewest first.
        (nersc.SLOWER_WITH_GLOBAL_SHUFFLE, SEVERAL, "holds", (9 * 0.4 + 31 * 0.1) / (8 * 0.4 + 32 * 0.1),
         "2 nodes 1.05 times; 4 nodes 1.75 times; not in memory at 2: 8 of 40 files locally, 9 of 40 files globally; "),
        (nersc.SLOWER_WITH_GLOBAL_SHUFFLE, unknown(), "holds", 11.2 / 6.4,
         "not in memory at 4: unknown locally, unknown globally"),
        (nersc.SLOWER_WITH_GLOBAL_SHUFFLE, [hepcnn(1, "local", 8)], "not measured", None, "no number of nodes above 1"),
        (nersc.BY_MEMORY, shuffled(), "holds", 1.0, "predicted / read: 4 nodes 1.00"),
        (nersc.BY_MEMORY, SEVERAL, "holds", 1.0, "predicted / read: 2 nodes 1.00, 4 nodes 1.00"),
        (nersc.BY_MEMORY, shuffled(slower=1.3), "differs", 1 / 1.3, ""),
        (nersc.BY_MEMORY, unknown(), "not measured", None, ""),
        # Nodes that share a page cache show nothing of global shuffling.
        *((claim, shuffled(8, private=0), "not comparable", 1.0, "these nodes share a page cache")
          for claim in (nersc.SLOWER_WITH_GLOBAL_SHUFFLE, nersc.BY_MEMORY)),
        # With local shuffling no rank reads what another has read.
        (nersc.TRAINING[HEPCNN], scaled(4.0, private=0), "holds", 4.0, ""),
        (nersc.SHARE[HEPCNN], scaled(0.5), "holds", None, "shuffle local: weakest from 1 to 4 nodes"),
        (nersc.SHARE[HEPCNN], scaled(4.0), "differs", None, "weakest from 1 to 4 nodes"),
        (nersc.TRAINING[HEPCNN], scaled(4.0), "holds", 4.0, "weakest from 1 to 4 nodes"),
        (nersc.TRAINING[HEPCNN], scaled(0.5), "differs", 0.5, "weakest from 1 to 4 nodes"),
        # More threads on one node say nothing of nodes.
        (nersc.SHARE[CDB], ONE_NODE, "not measured", None, ""),
        (nersc.WITH_EPOCHS, epochs(36), "holds", None, "not in memory with 5: 36 of 40 files"),
        (nersc.WITH_EPOCHS, epochs(24), "differs", None, "not in memory with 5: 24 of 40 files"),
        (nersc.WITH_EPOCHS, epochs(36, private=0), "not comparable", None, "these nodes share a page cache"),
        (nersc.WITH_DATA, [*data(2.5), hepcnn(1, "local", 8)], "holds", 2.5 / 1.6, "65 to 129 files 1.56"),
        (nersc.WITH_DATA, data(1.5), "differs", 1.5 / 1.6, "65 to 129 files 0.94"),
        # As many steps of any data set show nothing of a larger one.
        (nersc.WITH_DATA, data(2.5, iterations=8), "not comparable", 2.5 / 1.6, "iterations is set"),
        (nersc.WITH_EPOCHS, [*data(2.5), hepcnn(1, "local", 8)], "not measured", None, ""),
    ],
)  # fmt: skip
def test_a_claim_holds_or_differs_with_what_was_in_memory_beside_it(claim, made, verdict, ours, why):
    row = told(claim, *made)

    assert row["verdict"] == verdict
    assert why in row["why"]
    assert ours is None or row["ours"] == pytest.approx(ours)


@pytest.mark.parametrize("private", [0, 1])
@pytest.mark.parametrize(("claim", "slower"), [(nersc.SHARE[HEPCNN], 0.5), (nersc.TRAINING[HEPCNN], 4.0)])
def test_more_nodes_that_share_a_page_cache_show_nothing_with_global_shuffling(claim, slower, private):
    rows = checklist(*scaled(slower, "global", private=private))

    (row,) = rows[rows["claim"] == claim.text].to_dict("records")
    assert row["verdict"] == ("holds" if private else "not comparable")
    assert ("these nodes share a page cache" in row["why"]) == (not private)


@pytest.mark.parametrize(("words", "first", "second"), [("threads", 1, 4), ("sync", "barrier", "allreduce")])
def test_nodes_are_compared_where_threads_and_the_meeting_of_ranks_are_alike(words, first, second):
    several = [climate(65, load_s, nodes=4, **{words: how}) for how, load_s in ((first, 2.0), (second, 0.2))]
    one = [climate(65, 0.5, nodes=1, **({words: how} if words == "threads" else {})) for how in (first, second)]
    rows = checklist(*several, *(one if words == "threads" else one[:1]))

    found = rows[rows["claim"] == nersc.SHARE[CDB].text].set_index("about")["verdict"]
    assert {about.rpartition(", ")[2]: each for about, each in found.items()} == {
        f"{words} {first}" if words == "threads" else first: "holds",
        f"{words} {second}" if words == "threads" else second: "differs",
    }


def test_nerscs_claims_are_told_of_where_anything_of_theirs_was_measured():
    plain, one = (set(checklist(made)["claim"]) for made in (record([100]), hepcnn(1, "local", 8)))

    assert plain.isdisjoint(claim.text for claim in nersc.CLAIMS)
    assert nersc.SLOWER_WITH_GLOBAL_SHUFFLE.text in one
    assert nersc.SHARE[CDB].text not in one
