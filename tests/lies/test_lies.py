"""Each lie is staged for real, and the tool answers as it must."""

import pytest

from tests.lies import workspace
from tests.lies.lie import MissingError
from tests.lies.registry import ALL, IN_CI


@pytest.mark.long
@pytest.mark.parametrize(
    "lie", [pytest.param(lie, marks=[pytest.mark.in_ci] * (name in IN_CI), id=name) for name, lie in ALL.items()]
)
def test_the_tool_answers_as_it_must(lie):
    try:
        truth, answer = workspace.run(lie)
    except MissingError as error:
        pytest.skip(str(error))

    if problem := lie.expected.problem(answer):
        pytest.fail("\n".join([lie.done, f"the truth: {truth}", problem, "it answered:", *answer.remarks]))
