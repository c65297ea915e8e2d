"""What a user's own files tell, by the rules for cells; and what they lack, which is not guessed."""

import json
from pathlib import Path

import pytest

from campaign.advice import own_files
from campaign.cli import show
from campaign.errors import UsageError
from jobs.profiler import report
from tests.jobs.events.logs import event, stream
from tests.jobs.events.spaces import written

RECORDS = Path(__file__).parents[2] / "acceptance" / "stored" / "measured" / "records"
PROFILE = RECORDS / "micro-demo-local-t2-b8-p0-c4855c15f1" / "profile-1.npz"
LOG = RECORDS / "hepcnn-hep-local-b4-27ad75d6cc" / "timelog-1.timelog"


def told(capsys, path, *words):
    code = show.main([str(path), *words])
    return code, capsys.readouterr().out


def test_a_time_log_that_was_measured_is_bound_by_its_steps(capsys):
    code, out = told(capsys, LOG)

    assert code == 0
    assert "bound by steps: steps 97%, waiting for input 1%" in out
    assert "the training hardly waits for input" in out
    assert "the file lacks: CPU seconds of the program" in out


@pytest.mark.parametrize(
    ("events", "word", "words"),
    [
        ([("compute", 0, 700), ("read", 700, 1000)], "steps", "steps 70%, waiting for input 30%"),
        ([("compute", 0, 200), ("load", 200, 900), ("read", 900, 1000)], "decoding",
         "waiting for input 80%, of it decoding 88%"),
        ([("compute", 0, 200), ("read", 200, 1000)], "undecided", "of it reading 100%; the storage limits"),
        ([("compute", 0, 200), ("next", 200, 1000)], "undecided", "the cause of most input waiting is unknown"),
        ([("compute", 0, 500), ("read", 500, 1000)], "undecided", "too near"),
        ([("checkpoint", 0, 700), ("compute", 700, 1000)], "undecided", "checkpoints take most of the time"),
        ([("barrier", 0, 900)], "undecided", "nothing took 50% of the time"),
    ],
)  # fmt: skip
def test_of_a_time_log_each_moment_counts_once(events, word, words, tmp_path, capsys):
    path = stream(tmp_path / "a.timelog", [event(*each) for each in events])

    _, out = told(capsys, path)

    assert f"bound by {word}: " in out
    assert words in out


def test_a_time_log_without_a_known_action_says_so(tmp_path, capsys):
    path = stream(tmp_path / "a.timelog", [event("barrier", 0, 900)])

    assert "the file lacks: known actions (compute, validate, read, open)" in told(capsys, path)[1]


STEPS = [("train", 0, 100, 1), ("campaign input", 0, 60), ("campaign compute", 60, 90)]
DECODES = [("ReadFile:ReadFile", 5, 10), ("DecodeJpeg:DecodeJpeg", 10, 58)]


def test_a_trace_of_tensorflow_has_the_word_and_the_rule_of_steps_that_wait(tmp_path, capsys):
    path = written(tmp_path / "a.xplane.pb", [("python", STEPS), ("tf_data_private_threadpool/1", DECODES)])

    code, out = told(capsys, path)
    _, found = told(capsys, path, "--json")

    assert code == 0
    assert "bound by decoding: waiting for input 60%, of it decoding 80%" in out
    assert "1 input_bound, 60% of the run time" in out
    found = json.loads(found)
    assert (found["kind"], found["bound"]["word"]) == ("TensorFlow trace", "decoding")
    (finding,) = found["findings"]
    assert {fact["source"] for fact in finding["evidence"]} == {"file"}
    assert {fact["what"]: fact["value"] for fact in finding["evidence"]}["exposed decode"] == pytest.approx(48e-6)


def test_a_trace_without_marked_steps_says_that_it_lacks_them(tmp_path, capsys):
    path = written(tmp_path / "a.xplane.pb", [("python", STEPS[1:])])

    assert "the file lacks: marks of the training steps" in told(capsys, path)[1]


def test_a_profile_alone_has_no_word_and_says_what_would_give_one(capsys):
    _, out = told(capsys, PROFILE)

    assert "bound by undecided" in out
    assert "calls alone do not show it" in out
    assert [line.partition(", ")[0] for line in out.splitlines() if line.startswith("the file lacks")] == [
        "the file lacks: the times of the calls (a profile in the mode trace has these times)",
        "the file lacks: CPU seconds of the program",
        "the file lacks: load and limits of the storage devices",
        "the file lacks: marks of the training steps",
        "the file lacks: quotas and limits of the program's control group",
    ]


@pytest.mark.parametrize(("meta_s", "is_found"), [(2.99, False), (3.0, True)])
def test_a_profile_whose_calls_are_not_reading_is_found_by_the_rule_for_cells(meta_s, is_found, capsys, monkeypatch):
    seen = {"wall_s": 20.0, "threads": 1, "under_way_s": 10.0, "read_s": 7.0, "write_s": 0.0, "meta_s": meta_s,
            "device_bytes": 50, "bytes_read": 100, "opens": 5, "stats": 5, "reads": 10, "files": 5}  # fmt: skip
    monkeypatch.setattr(own_files.saved_profiles, "read_profile", lambda _: None)
    monkeypatch.setattr(report, "window_metrics", lambda _: seen)

    _, out = told(capsys, PROFILE)

    assert ("1 metadata, " in out) is is_found
    assert "30% of the time in calls is not spent on reading" in out or not is_found
    assert "threads in calls 50%, a call under way 50%, bytes from devices 50%" in out


@pytest.mark.parametrize(
    ("name", "content"), [("a.pb", b"\xff"), ("a.npz", b"PK"), ("a.csv", b"\0"), ("a.timelog", b"")]
)
def test_what_is_none_of_these_is_refused_with_what_could_be(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)

    with pytest.raises(UsageError) as error:
        show.main([str(tmp_path / name)])
    assert "name a profile" in error.value.hint


def test_a_file_has_nothing_to_test():
    with pytest.raises(UsageError, match="--test measures cells"):
        show.main([str(LOG), "--test"])
