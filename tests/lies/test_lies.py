"""Each lie is staged for real, and the tool answers as it must."""

from __future__ import annotations

import pytest

from tests.lies import workspace
from tests.lies.lie import FooledError, MissingError
from tests.lies.registry import ALL


def _case(lie):
    marks = [pytest.mark.xfail(strict=True, raises=FooledError, reason=lie.today)] if lie.today else []
    return pytest.param(lie, id=lie.name, marks=marks)


@pytest.mark.long
@pytest.mark.parametrize("lie", [_case(lie) for lie in ALL.values()])
def test_the_tool_answers_as_it_must(lie):
    try:
        truth, answer = workspace.run(lie)
    except MissingError as error:
        pytest.skip(str(error))

    problem = lie.expected.problem(answer)
    if problem:
        raise FooledError("\n".join([lie.done, f"the truth: {truth}", problem, "it answered:", *answer.remarks]))
