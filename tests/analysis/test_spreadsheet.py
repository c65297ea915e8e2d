"""A frame as CSV: what pandas writes, and nothing that a spreadsheet would run."""

import math

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis import spreadsheet


def test_names_and_texts_that_a_spreadsheet_would_run_are_written_as_text_even_beside_their_like():
    frame = pd.DataFrame({"=n": ["=x", "'=x"], "'=n": pd.Categorical(["=x", "'=x"]), "rate": [-1.5, 2.0]})

    assert spreadsheet.frame_as_csv(frame).decode() == "'=n,'=n,rate\n'=x,'=x,-1.5\n'=x,'=x,2.0\n"


_ODD = st.sampled_from([1, 1.0, True, 0, -0.0, False, 2**70, math.nan, math.inf, None, pd.NA, "1", 'a,"b', (1, "a")])
_KINDS = {
    "float64": st.floats(),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "Int64": st.integers(-(2**63), 2**63 - 1) | st.none(),
    "boolean": st.booleans() | st.none(),
    "str": st.text('ab,"é', min_size=1) | st.none(),
    "object": _ODD,
    "category": st.sampled_from([1, 2.5, "a,b", 'a"', "é", None]),
}


@given(data=st.data(), rows=st.integers(0, 7), most=st.integers(1, 8))
@pytest.mark.parametrize("kind", _KINDS)
def test_values_of_each_type_are_written_as_pandas_writes_them_however_many_lines_at_once(kind, data, rows, most):
    values = data.draw(st.lists(_KINDS[kind], min_size=rows, max_size=rows))
    frame = pd.DataFrame({"a": range(rows), "b": pd.Series(values, dtype=kind)})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spreadsheet, "AT_ONCE", most)
        assert spreadsheet.frame_as_csv(frame).decode() == frame.to_csv(index=False, lineterminator="\n")
