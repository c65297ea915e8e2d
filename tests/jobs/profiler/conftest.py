"""The profiler's tests compile its library once, before any of them."""

import pytest

from jobs.profiler import ProfilerError, attach, detach


@pytest.fixture(autouse=True)
def attached():
    """Hook this process, and give its calls back."""
    try:
        attach()
    except ProfilerError as error:
        pytest.skip(str(error))
    yield
    detach()
