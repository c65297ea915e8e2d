"""Tables of events."""

import numpy as np
import pytest

from jobs.events.table import Events
from jobs.events.time_log import UNKNOWN


def test_a_table_gives_its_events_by_word_by_number_and_row_by_row():
    columns = {"start": [3, 0, 5], "end": [4, 2, 9], "kind": [1, 0, 1], "file": [0, -1, 0], "step": [7, 8, 7]}
    table = Events({"kind": ["a", "b"], "file": ["x"]}, **{name: np.array(each) for name, each in columns.items()})

    assert table.with_words("kind", "b")["start"].tolist() == [3, 5]
    assert {step: own["end"].tolist() for step, own in table.grouped_by("step")} == {7: [4, 9], 8: [2]}
    assert (table.texts("kind"), table.texts("file")) == (["b", "a", "b"], ["x", None, "x"])
    assert list(table.rows("end", "bytes")) == [(4, UNKNOWN), (2, UNKNOWN), (9, UNKNOWN)]  # nothing says how many bytes
    assert table.spans.length == 7
    with pytest.raises(KeyError):
        table["phase"]
