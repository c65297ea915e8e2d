"""JSON that somebody has damaged: an odd value, or none, in the place of any of its nodes."""

from hypothesis import strategies as st

GONE = object()
VALUES = [GONE, None, True, -1, 7, 10**18, 1.7e308, -1.5, "", "x", "../x", "\x1b", [], {}, [[]], [None], {"a": []}]
ODD = st.sampled_from(VALUES)


def changed(value, number, by):
    """The same JSON with its node of that number replaced or gone; None where it has fewer."""
    left = [number]

    def walked(node):
        left[0] -= 1
        if left[0] == -1:
            return by
        if isinstance(node, dict):
            return {key: made for key, each in node.items() if (made := walked(each)) is not GONE}
        return [made for each in node if (made := walked(each)) is not GONE] if isinstance(node, list) else node

    made = walked(value)
    return made if left[0] < 0 and made is not GONE else None
