"""CDB's rules against what was published, and what must hold of any run."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.benchmarks.climate_data import SHUFFLE, TRAIN, VALIDATION, ClimateRules, first_sample_fault, rank_expectations

runs = st.builds(
    ClimateRules,
    files=st.integers(1, 400),
    ranks=st.integers(1, 5),
    rank=st.just(0),
    epochs=st.integers(1, 3),
    batch_size=st.integers(1, 4),
    iterations=st.none() | st.integers(1, 3),
    seed=st.integers(0, 99),
)


@pytest.mark.parametrize(("nodes", "reads"), [(64, 20_672), (128, 22_528), (256, 25_856), (512, 33_280)])
def test_the_published_counts_of_reads_follow_from_the_parameters(nodes, reads):
    """NERSC's deck of 2018-07-27: three epochs of three steps, 16 images kept ready, four calls."""
    rules = ClimateRules(62_738, nodes, 0, 3, 1, 3, 12_345)

    assert [len(rules.split(phase)) for phase in (TRAIN, VALIDATION)] == [50_190, 6_274]
    assert nodes * (rules.most_images_read(16, 4) + rules.images[VALIDATION]) == reads


@given(runs)
def test_shares_are_disjoint_and_equal_and_a_pass_has_each_file_once(rules):
    ranks = [replace(rules, rank=rank) for rank in range(rules.ranks)]
    assert not set(rules.split(TRAIN)) & set(rules.split(VALIDATION))
    for phase in (TRAIN, VALIDATION):
        shares = [each.share(phase) for each in ranks]
        together = [file for share in shares for file in share]
        assert len({len(share) for share in shares}) == 1
        assert len(together) == len(set(together)) > len(rules.split(phase)) - rules.ranks
        assert set(together) <= set(rules.split(phase))
        for number in range(2):
            order = rules.order(phase, number)
            assert len(set(order)) == len(order) == rules.batches(phase) * rules.batch_size
            assert set(order) <= set(shares[0])


@given(runs)
def test_a_file_comes_at_most_so_much_earlier_as_files_are_drawn_from(rules):
    share = rules.share(TRAIN)
    order = rules.order(TRAIN, 0)

    assert all(share.index(file) < place + SHUFFLE for place, file in enumerate(order))


@given(runs, st.integers(0, 9), st.integers(1, 4))
def test_what_may_be_asked_for_is_what_is_consumed_and_so_many_read_ahead(rules, prefetch, calls):
    whole = [file for number in range(rules.epochs) for file in rules.order(TRAIN, number)]
    most = rules.most_images_read(prefetch, calls)

    assert len(rules.consumed_files(TRAIN)) == min(len(whole), rules.epochs * rules.steps * rules.batch_size)
    assert most == min(len(whole), rules.epochs * rules.steps * rules.batch_size + prefetch + calls)
    validated = rules.share(VALIDATION) if rules.batches(VALIDATION) else []
    assert rules.readable_files(prefetch, calls) == sorted({*whole[:most], *validated})
    assert {*rules.consumed_files(TRAIN), *rules.consumed_files(VALIDATION)} <= {*rules.readable_files(prefetch, calls)}


@pytest.mark.parametrize(
    ("asked", "size", "fine"), [(5, 7, False), (6, 7, True), (10, 7, True), (11, 7, False), (10, 8, True)]
)
def test_at_least_what_is_consumed_and_at_most_what_is_kept_ready_is_asked_for(asked, size, fine):
    rules = ClimateRules(32, 1, 0, 2, 1, 3, 1)

    found = rank_expectations(rules, {TRAIN: 6, VALIDATION: 8}, {TRAIN: asked}, 10, (size, 7))

    ahead = found["ahead_as_predicted"]
    assert (ahead["found"], f"{asked - 6} images of train were read ahead" in ahead["message"]) == (fine, True)
    assert "at most 4 are expected" in ahead["message"]
    assert (found["bytes_as_predicted"]["found"], found["bytes_as_predicted"]["expected"]) == (size, 7)
    assert found["counts_as_predicted"]["expected"] == {TRAIN: 6, VALIDATION: 8}


@given(runs, st.data())
def test_a_file_that_comes_twice_or_not_or_from_elsewhere_is_found(rules, data):
    delivered = [replace(rules, rank=rank, iterations=None).consumed_files(TRAIN) for rank in range(rules.ranks)]
    assert first_sample_fault(rules, delivered) == ""
    if not delivered[0]:
        return
    rank = data.draw(st.integers(0, rules.ranks - 1))
    place = data.draw(st.integers(0, len(delivered[rank]) - 1))
    whole = [*delivered[rank]]

    delivered[rank] = [*whole[:place], rules.files, *whole[place + 1 :]]
    assert "is in no rank's share" in first_sample_fault(rules, delivered)
    pass_of = rules.batches(TRAIN) * rules.batch_size
    if pass_of > 1:
        other = place // pass_of * pass_of + (place + 1) % pass_of
        delivered[rank] = [*whole[:place], whole[other], *whole[place + 1 :]]
        assert "was used 2 times" in first_sample_fault(rules, delivered)
