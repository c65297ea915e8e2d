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


@pytest.fixture
def data(tmp_path):
    """A file of 10,000 bytes, in a folder of its own."""
    file = tmp_path / "data" / "file"
    file.parent.mkdir()
    file.write_bytes(bytes(10_000))
    return file
