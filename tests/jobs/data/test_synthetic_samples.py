"""Files with samples of the sizes that a definition states."""

from dataclasses import replace

import pytest

from jobs.data.specs import dataset_id
from jobs.data.synthetic_samples import SampleSpec

UNET3D = SampleSpec(files=168, sample_bytes=146_600_628, sample_sd=68_341_808, samples_per_file=1, seed=0)


@pytest.mark.parametrize("files", [2, 168, 1001])
def test_the_sizes_have_the_mean_and_the_spread_that_are_asked_for_and_none_is_below_zero(files):
    sizes = replace(UNET3D, files=files).sizes()

    assert sizes.mean() == pytest.approx(146_600_628, rel=1e-6)
    assert sizes.std() == pytest.approx(68_341_808, rel=1e-3)
    assert sizes.min() > 0
    assert set(replace(UNET3D, sample_sd=0).sizes()) == {146_600_628}


def test_a_file_of_many_samples_has_all_of_their_bytes():
    assert set(SampleSpec(3, 1000, 0, 7, 0).sizes()) == {7000}


@pytest.mark.parametrize(("sd", "per_file", "why"), [(10, 2, "one file have equal sizes"), (600, 1, "more than half")])
def test_impossible_sizes_are_refused(sd, per_file, why):
    with pytest.raises(ValueError, match=why):
        SampleSpec(4, 1000, sd, per_file, 0)


def test_the_bytes_follow_from_the_seed_and_no_two_files_are_alike():
    spec = SampleSpec(2, 1000, 0, 1, 0)

    assert spec.content(0, 1000) == spec.content(0, 1000) != spec.content(1, 1000)
    assert len(spec.content(0, 1000)) == 1000
    assert spec.content(0, 1000) != replace(spec, seed=1).content(0, 1000)
    assert dataset_id("samples", spec) != dataset_id("samples", replace(spec, seed=1))
