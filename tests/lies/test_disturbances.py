"""Each disturbance happens to a plain loop of threads, and is over when its block is left."""

import sys

import pytest

from tests.lies import workspace
from tests.lies.disturbances import rows
from tests.lies.disturbances.disturbance import ALL
from tests.lies.lie import MissingError


@pytest.mark.long
@pytest.mark.parametrize("disturbance", ALL.values(), ids=ALL)
def test_a_disturbance_happens_to_any_program(disturbance):
    try:
        with workspace.opened() as space:
            place = rows.place_of(space, disturbance.device)
            with disturbance.around(place) as start:
                words = (sys.executable, "-m", "tests.lies.tools.thread_loop", str(place.paths[0].parent))
                done = space.program(*words, inside=start.inside, **start.environment)
                happened, truth = start.happened()
    except MissingError as error:
        pytest.skip(str(error))

    assert not done.returncode, done.stderr
    assert happened, truth
    assert float(done.stdout) > 0
