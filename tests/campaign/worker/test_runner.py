"""A cell on several ranks: one record with each rank's own figures, or why one of them failed."""

from types import SimpleNamespace

import pytest

from campaign.worker import runner
from campaign.worker.runner import RankOutcome, RanksOfRun
from jobs.judging.judge import judged_run
from jobs.model.codes import run_end_sentence
from jobs.model.conduct import Limits
from tests.campaign.fake_template import failed, figures
from tests.campaign.work_lists import compose

ALONE = {"status": "failed", "end": {"code": "ranks_parted", "words": "rank 1 has gone"}}


def run(tmp_path, *outcomes, **conduct):
    asked = []
    ended = [RankOutcome(run, place + 1.0, *alone) for place, (run, *alone) in enumerate(outcomes)]
    addresses = [f"127.0.0.{rank + 1}" for rank in range(len(outcomes))]
    ranks = RanksOfRun(addresses, "5e", lambda *words: asked.append(words) or ended)
    point = compose("nodes=2", "sync=barrier", *(f"{key}={value}" for key, value in conduct.items()))
    request = {
        "settings": {key: point[key] for key in ("benchmark", "cache", "nodes", "sync", "storage")},
        "dataset": "/data",
        "trace": {"file": str(tmp_path / "trace-3.csv"), "interval_s": 1.0, "tail_s": 0.0},
        "profile": str(tmp_path / "profile-3.npz"),
        "steps": str(tmp_path / "run-3.npz"),
        "checkpoint": {"folders": []},
    }
    found = runner.run_on_ranks(ranks, request, tmp_path / "run-3.log", point)
    return list(zip(*asked[0][:2], strict=True)), found


def bare(**changed):
    return {key: value for key, value in figures(**changed).items() if key not in ("checks", "status")}


def test_a_run_of_several_ranks_is_one_run_with_the_figures_of_each(tmp_path):
    _, found = run(
        tmp_path, (bare(images=30, images_per_s=15.0, wall_s=2.0),), (bare(images=10, images_per_s=10.0, wall_s=1.0),)
    )

    assert found["images_per_s"] == 20.0
    assert [each["figures"]["images"] for each in found["ranks"]] == [30, 10]
    assert (found["straggler"], found["elapsed_s_with_fork"]) == (0, 2.0)
    assert (found["status"], "checks" in found) == ("ended", False)
    rules = {check["rule"] for check in judged_run(found, "cold", Limits())["checks"]}
    assert rules >= {"cold", "complete", "quiet", "began_together"}


def test_each_rank_has_files_of_its_own_and_the_first_alone_saves(tmp_path):
    asked, _ = run(tmp_path, (bare(),), (bare(),))

    (one, log), (other, other_log) = asked
    assert (log.name, other_log.name) == ("run-3.log", "run-3-rank1.log")
    assert (one["trace"]["file"], one["checkpoint"]) == (str(tmp_path / "trace-3.csv"), {"folders": []})
    assert other["trace"]["file"].endswith("/trace-3-rank1.csv")
    assert other["profile"].endswith("/profile-3-rank1.npz")
    assert other["steps"].endswith("/run-3-rank1.npz")
    assert other["checkpoint"] is None


def test_ranks_know_what_they_do_after_a_step_and_how_long_they_wait(tmp_path):
    asked, _ = run(tmp_path, (bare(),), (bare(),), ranks_timeout_s=7)

    for rank, (request, _) in enumerate(asked):
        place = request["rank"]
        assert (place["rank"], place["size"], place["sync"], place["timeout_s"]) == (rank, 2, "barrier", 7)
        assert (place["hub"], place["address"]) == ("127.0.0.1", f"127.0.0.{rank + 1}")


@pytest.mark.parametrize("cause", [0, 1])
def test_the_rank_that_failed_by_itself_says_why_and_not_those_who_heard_of_it(tmp_path, cause):
    outcomes = [(ALONE, True), (ALONE, True)]
    outcomes[cause] = (failed(),)

    _, found = run(tmp_path, *outcomes)

    assert (found["status"], found["end"]) == ("failed", {"code": "killed", "number": 9, "rank": cause})
    assert run_end_sentence(found["end"]) == f"rank {cause}: killed by signal 9 (SIGKILL)"
    assert found["log"] == ["run-3.log", "run-3-rank1.log"][cause]


@pytest.mark.parametrize("size", [1, 3])
def test_all_ranks_may_be_on_this_machine(size, tmp_path):
    asked = []
    template = SimpleNamespace(run_together=lambda *words: asked.append(words) or [RankOutcome({}, 0.0)] * size)

    ranks = runner.local_ranks(template, size)

    assert len(ranks.run_ranks([{}] * size, [tmp_path] * size, 7.0)) == size
    assert (ranks.addresses, asked) == (["127.0.0.1"] * size, [([{}] * size, [tmp_path] * size, 7.0)])
