"""The mistakes that `python -m tests.mutants` makes."""

import ast

import pytest

from tests.mutants.__main__ import EQUIVALENT, ROOT
from tests.mutants.mistakes import mistakes

MADE = {
    "off by one": ("n + 1", "n"),
    "comparison": ("a < b <= c", "a <= b <= c"),
    "and for or": ("a and b", "a or b"),
    "mean for median": ("statistics.median(x)", "statistics.mean(x)"),
    "min for max": ("map(max, x)", "map(min, x)"),
    "lower middle": ("(n - 1) // 2", "n // 2"),
    "first for last": ("x[-1]", "x[0]"),
    "unit": ("size / 10 ** 6", "size / (1 << 20)"),
    "wrong key": ("row['a'] + row['b']", "row['b'] + row['b']"),
    "sorted order": ("sorted(x, key=f)", "sorted(x, key=f, reverse=True)"),
    "default value": ("x.get('a', 0)", "x.get('a', 1)"),
    "lost statement": ("with self._lock:\n    os.fsync(fd)", "if True:\n    os.fsync(fd)"),
    "swallowed exception": ("if a:\n    raise OSError(b) from None", "if a:\n    pass"),
}


@pytest.mark.parametrize("kind", MADE)
def test_a_mistake_of_each_kind_is_made_and_leaves_the_tree_as_it_was(kind):
    right, wrong = MADE[kind]
    tree = ast.parse(right)

    made = {each[-1]() for each in mistakes(tree) if each[0] == kind}

    assert wrong in made
    assert right not in made
    assert ast.unparse(tree) == right


def test_a_mistake_is_told_with_its_line_and_function():
    tree = ast.parse("class A:\n    def f(self):\n        'No mistake: min.'\n        return min(1.5,\n            x)")

    assert [each[:-1] for each in mistakes(tree)] == [
        ("min for max", 4, "A.f", "`min` → `max` in `min(1.5, x)`"),
        ("default value", 4, "A.f", "`1.5` → `2 * 1.5 + 1` in `min(1.5, x)`"),
    ]


@pytest.mark.parametrize("what", EQUIVALENT)
def test_a_reason_is_that_of_a_mistake_that_is_made(what):
    place, _, change = what.partition(": ")
    module, _, function = place.partition(" ")

    made = {tuple(mistake[2:4]) for mistake in mistakes(ast.parse((ROOT / module).read_text(encoding="utf-8")))}

    assert (function, change) in made
