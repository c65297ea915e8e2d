"""Truth by construction: accelerators of known demand on a device of known rate; marked long.

The device gives so many MB/s, whoever asks, so the number that is fed follows by arithmetic. Where 4 % less or more of
the rate would give another number, nothing can be decided, and both are right.
"""

import contextlib
import math

import pytest

from tests.acceptance import door
from tests.campaign.testbed.models import KINDS
from tests.lies import setup
from tests.lies.lie import MissingError

pytestmark = pytest.mark.long
WITHIN = 0.04  # of the rate
RATES = (16, 24, 40, 60, 90)
# Bytes of a sample, batch, seconds of a step: 4, 10 and 16 MB/s.
DEFINITIONS = {"small": (100_000, 8, 0.2), "medium": (250_000, 4, 0.1), "large": (800_000, 4, 0.2)}


@pytest.fixture
def feed(tmp_path):
    """A function: search on a device of a rate in MB/s; returns the answer."""

    def feed(rate, sample_bytes, batch, step_s, *words):
        with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
            patch.setitem(KINDS["flash"], "read_mb_per_s", rate)
            try:
                made = setup.disk(stack, tmp_path / "image", tmp_path / "disk", mib=600, model="flash")
            except MissingError as missing:
                pytest.skip(str(missing))
            own = {"sample_bytes": sample_bytes, "batch": batch, "step_s": step_s}
            own = [f"accelerator.{key}={value}" for key, value in own.items()]
            usual = ("accelerator=own", "benchmark.file_mb=60", "--runs", "2", "--yes", "--json")
            done = door.cli("feed", f"storage={made.point}", *usual, *own, *door.SHARED, *words, cwd=tmp_path)
            assert done.code == 0, done.err
            (answer,) = done.json
            return answer

    return feed


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("definition", DEFINITIONS)
def test_the_number_is_that_of_arithmetic(rate, definition, feed):
    sample_bytes, batch, step_s = DEFINITIONS[definition]
    answer = feed(rate, sample_bytes, batch, step_s, f"iterations={round(2.4 / step_s)}")
    least = 0.9 * batch * sample_bytes / 1e6 / step_s
    legal = {math.floor(rate * (1 + error) / least) for error in (-WITHIN, 0, WITHIN)}

    if answer["feeds"] is not None and answer["feeds"] < 1:  # below one it is a share, of the demand at the minimum
        assert answer["feeds"] == pytest.approx(rate / least, rel=0.12)
        assert 0 in legal
    else:
        assert answer["client_at_most"] is None, answer
        assert answer["feeds"] in legal
