"""Files with the sizes and the entropy of executables."""

from dataclasses import replace

import numpy as np
import pytest

from jobs.data.synthetic_executables import ExecutableSpec

SPEC = ExecutableSpec(files=10_868, median_bytes=4_000_000, classes=9, seed=0)


def test_the_sizes_are_those_that_were_published():
    sizes = SPEC.sizes()
    small = sizes[sizes < 2e6]

    assert (sizes.sum(), np.median(sizes)) == pytest.approx((48e9, 4e6), rel=0.005)
    assert len(small) == pytest.approx(4_420, abs=2)
    assert small.sum() == pytest.approx(3.7e9, rel=0.005)


def test_the_median_scales_all_sizes_and_the_seed_orders_them():
    few = replace(SPEC, files=100)

    assert replace(few, median_bytes=400_000).sizes() == pytest.approx(few.sizes() / 10, rel=0.01, abs=64)
    assert sorted(replace(few, seed=1).sizes()) == sorted(few.sizes())
    assert replace(few, seed=1).sizes().tolist() != few.sizes().tolist()


def test_the_bytes_follow_from_seed_and_class_and_have_the_entropy_of_this_version():
    data = SPEC.content(3, 300_001)
    shares = np.bincount(np.frombuffer(data, np.uint8), minlength=256) / len(data)

    assert len(data) == 300_001
    assert data == SPEC.content(3, 300_001)
    assert data != SPEC.content(4, 300_001)
    assert data != replace(SPEC, seed=1).content(3, 300_001)
    assert -(shares[shares > 0] * np.log2(shares[shares > 0])).sum() == pytest.approx(7.254, rel=1e-3)
    assert np.frombuffer(data, np.uint8).mean() == pytest.approx(129.62, rel=1e-3)
