"""The time log of a run that is begun anew has nothing of the one before."""

from jobs.observe.spent import logged
from jobs.ranks.rank import Rank


def test_logs_that_a_killed_run_left_are_removed_and_those_of_others_stay(tmp_path):
    gone, kept = ("a.timelog", "a.timelog.77.timelog"), ("a-rank1.timelog", "a-rank1.timelog.78.timelog", "a1.timelog")
    for name in (*gone, *kept):
        (tmp_path / name).write_text("of before")

    with logged({"timelog": str(tmp_path / "a.timelog")}, Rank()) as log:
        assert log

    assert {path.name for path in tmp_path.iterdir()} == {"a.timelog", *kept}
    assert "of before" not in (tmp_path / "a.timelog").read_text()
