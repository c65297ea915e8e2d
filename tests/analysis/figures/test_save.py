import pandas as pd

from analysis.figures.kit import save


def test_names_and_texts_that_a_spreadsheet_would_run_are_written_as_text_even_beside_their_like():
    frame = pd.DataFrame({"=n": ["=x", "'=x"], "'=n": pd.Categorical(["=x", "'=x"]), "rate": [-1.5, 2.0]})

    assert save.csv(frame).decode() == "'=n,'=n,rate\n'=x,'=x,-1.5\n'=x,'=x,2.0\n"
