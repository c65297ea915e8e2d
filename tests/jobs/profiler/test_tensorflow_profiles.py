"""Our windows in TensorFlow's own traces, held against what TensorFlow recorded in the same traces."""

import sys

import pytest

from jobs.profiler import ProfileCallback, ProfilerError, TensorFlowProfile


def test_what_was_not_started_is_not_stopped(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    kept = tmp_path / "file"
    kept.touch()

    with pytest.raises(ProfilerError, match="no profile was started"):
        TensorFlowProfile(tmp_path).stop()

    assert kept.exists()


@pytest.mark.parametrize("asked", [{"batches": (3, 2)}, {"batches": (-1, 2)}, {"batches": (2, 9), "every": 7}])
def test_batches_that_are_no_range_are_refused(asked, tmp_path):
    with pytest.raises(ProfilerError, match="batches"):
        ProfileCallback(tmp_path, **asked)
