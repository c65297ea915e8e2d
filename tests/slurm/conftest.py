import pytest

from tests.slurm import lab as laboratory
from tests.slurm.campaigns import Campaign


def _lab(*, accounting):
    if reason := laboratory.missing(accounting=accounting):
        pytest.skip(reason)
    with laboratory.lab(nodes=4, cpus=2, accounting=accounting, memory_limit=accounting) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def lab():
    """A cluster of four nodes; skipped with the reason where there can be none."""
    yield from _lab(accounting=False)


@pytest.fixture(scope="session")
def accounting_lab():
    """The same with accounting, so that ``sacct`` answers, and with a memory limit that kills."""
    yield from _lab(accounting=True)


@pytest.fixture
def campaign(lab, tmp_path):
    return Campaign(lab, tmp_path)


@pytest.fixture(autouse=True)
def _mended(request):
    """No fault and no job of a test outlives it."""
    yield
    for name in {"lab", "accounting_lab"} & {*request.fixturenames}:
        request.getfixturevalue(name).mend()
