"""A listener of a job, whose secret the tests know."""

import contextlib

import pytest

from jobs.ranks.peers import Listener
from tests.jobs.ranks.strangers import SECRET


@pytest.fixture
def listener():
    with contextlib.closing(Listener("127.0.0.1", SECRET, 1)) as opened:
        yield opened
