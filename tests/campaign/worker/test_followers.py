"""The ranks of a job find one another by a file, do what the first one says, and end when it has gone."""

import contextlib
import json
import threading

import pytest

from campaign.errors import EnvironmentFaultError
from campaign.worker import followers
from campaign.worker import leader as leading
from campaign.worker.leader import Leader, RankLostError
from jobs.ranks.wire import Line
from tests.campaign.fake_template import FakeTemplate, failed, figures

SOON_S = 20.0


class Slow(FakeTemplate):
    """A template whose run lasts until somebody stops it, where it is to hang."""

    def __init__(self, *answers, hangs=False):
        super().__init__(*answers)
        self.hangs, self.was_stopped, self._stop = hangs, False, threading.Event()

    def run(self, argument, log, timeout_s):
        run = super().run(argument, log, timeout_s)
        if self.hangs and not self._stop.wait(SOON_S):
            raise TimeoutError
        return failed("the template process was killed") if self.was_stopped else run

    def stop(self):
        self.was_stopped = True
        self._stop.set()


@pytest.fixture
def work_list(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.delenv("SLURMD_NODENAME", raising=False)
    monkeypatch.setattr("campaign.slurm.job.node_address", lambda: "127.0.0.1")
    monkeypatch.setattr(leading, "_GRACE_S", 0.3)
    return tmp_path / "work-0.json"


@contextlib.contextmanager
def job_of(work_list, *templates, timeout_s=SOON_S):
    """A leader with the first of these templates, and a follower with each of the others."""
    leader = Leader(templates[0], work_list, len(templates), timeout_s)
    work = {"conduct": {"ranks_timeout_s": timeout_s}, "campaign_dir": str(work_list.parent)}
    threads = [
        threading.Thread(target=followers.serve, args=(work_list, work, rank, template))
        for rank, template in enumerate(templates[1:], start=1)
    ]
    for thread in threads:
        thread.start()
    try:
        yield leader
    finally:
        leader.close()
        for thread in threads:
            thread.join(SOON_S)
    assert not any(thread.is_alive() for thread in threads)


def test_each_rank_runs_its_own_request_again_and_again_and_all_end_with_the_first(work_list, tmp_path):
    templates = [Slow(figures(rate=rank), figures(rate=10 + rank)) for rank in range(3)]
    requests, logs = [{"of": rank} for rank in range(3)], [tmp_path / f"{rank}.log" for rank in range(3)]

    with job_of(work_list, *templates) as leader:
        leader.gather()
        outcomes = [leader.run(requests, logs, 5.0) for _ in range(2)]

    assert [[each.run["images_per_s"] for each in one] for one in outcomes] == [[0, 1, 2], [10, 11, 12]]
    assert [template.asked[0] for template in templates] == list(zip(requests, logs, [5.0] * 3, strict=True))
    assert leader.addresses == ["127.0.0.1"] * 3


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_where_one_rank_fails_those_that_hang_are_stopped_and_only_it_has_failed_by_itself(work_list, tmp_path, bad):
    templates = [Slow(failed()) if rank == bad else Slow(hangs=True) for rank in range(3)]

    with job_of(work_list, *templates) as leader:
        leader.gather()
        outcomes = leader.run([{}] * 3, [tmp_path / "log"] * 3, 5.0)

    assert [each.alone for each in outcomes] == [rank != bad for rank in range(3)]
    assert outcomes[bad].run["reason"] == "killed by signal 9 (SIGKILL)"


def test_a_rank_that_never_comes_is_named(work_list):
    leader = Leader(Slow(), work_list, 2, 0.2)

    with pytest.raises(EnvironmentFaultError, match=r"rank 1 of the job did not start within 0\.2 s"):
        leader.gather()


def test_a_rank_whose_connection_ends_in_a_run_is_lost(work_list, tmp_path):
    leader = Leader(Slow(), work_list, 2, SOON_S)

    def come_and_go():
        where = followers._found(work_list.with_suffix(".ranks.json"), SOON_S)  # noqa: SLF001
        with contextlib.closing(Line.to(where["address"], where["port"], SOON_S)) as line:
            line.send({"secret": where["secret"], "rank": 1, "boot": "b", "address": "a", "node": "n7"})
            line.receive(SOON_S)

    gone = threading.Thread(target=come_and_go)
    gone.start()
    leader.gather()

    with pytest.raises(RankLostError, match="rank 1 on n7 is lost"):
        leader.run([{}] * 2, [tmp_path / "log"] * 2, 5.0)
    gone.join()
    leader.close()


def test_who_does_not_know_the_secret_is_no_rank(work_list):
    leader = Leader(Slow(), work_list, 2, 1.0)

    def stranger(hello):
        where = followers._found(work_list.with_suffix(".ranks.json"), SOON_S)  # noqa: SLF001
        with contextlib.closing(Line.to(where["address"], where["port"], SOON_S)) as line, contextlib.suppress(OSError):
            line.send({"node": "n", "address": "a", "boot": "b", **hello})
            line.receive(SOON_S)

    hellos = ({"secret": "guessed", "rank": 1}, {}, {"secret": "é", "rank": None})
    others = [threading.Thread(target=stranger, args=(hello,)) for hello in hellos]
    for other in others:
        other.start()

    with pytest.raises(EnvironmentFaultError, match="rank 1"):
        leader.gather()
    assert work_list.with_suffix(".ranks.json").stat().st_mode & 0o777 == 0o600
    for other in others:
        other.join()


def test_what_an_earlier_start_of_the_job_left_is_not_taken_for_this_one(work_list):
    before = {"job": "7", "restarts": 3, "address": "a", "port": 1, "secret": "s"}
    file = work_list.with_suffix(".ranks.json")
    file.write_text(json.dumps(before))

    with pytest.raises(OSError, match="was not found"):
        followers._found(file, 0.3)  # noqa: SLF001


def test_ranks_that_come_when_the_first_has_gone_end_at_once(work_list):
    Leader(Slow(), work_list, 2, SOON_S).close()

    followers.serve(work_list, {"conduct": {"ranks_timeout_s": SOON_S}}, 1, Slow())


def test_each_kernel_s_own_lock_is_held_once_for_all_ranks_on_it(work_list, tmp_path, monkeypatch):
    kernels = iter(["first", "other", "other"])
    monkeypatch.setattr(followers, "boot", lambda: next(kernels, "first"))
    asked = []
    monkeypatch.setattr(followers.locks, "locked", lambda path: contextlib.nullcontext(asked.append(path)))

    with job_of(work_list, *[Slow() for _ in range(4)]) as leader:
        leader.gather()
        kinds = {each.boot for each in leader._followers}  # noqa: SLF001
        monkeypatch.setattr(leading, "boot", lambda: "first")
        with leader.holding(tmp_path / "lock"):
            held = list(asked)

    assert kinds == {"first", "other"}
    assert held == [tmp_path / "lock"]
