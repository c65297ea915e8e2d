"""The ranks of a job find one another by a file, do what the first one says, and end when it has gone."""

import contextlib
import errno
import itertools
import json
import os
import socket
import struct
import threading
import time

import pytest

from campaign.errors import EnvironmentFaultError, UsageError
from campaign.worker import ranks
from campaign.worker.ranks import Leader, RankLostError
from campaign.worker.runner import RankOutcome, failed_with_another
from jobs.channel import Channel, ClosedError
from jobs.ranks.peers import MAGIC, NONCE_BYTES, connect, derived_secret
from tests.campaign.fake_template import FakeTemplate, failed, figures
from tests.jobs.jobs_factory import eventually
from tests.jobs.ranks.strangers import silent

SOON_S = 20.0


class Slow(FakeTemplate):
    """A template whose run lasts so long, or until somebody stops it."""

    def __init__(self, *answers, lasts_s=0.0):
        super().__init__(*answers)
        self.lasts_s, self.was_stopped, self._stop = lasts_s, False, threading.Event()

    def begin(self, arguments, logs, timeout_s):
        self._run = self.run(arguments[0], logs[0], timeout_s)
        receives, sends = os.pipe()
        self._channel = Channel(receives)
        threading.Thread(target=lambda: (self._stop.wait(self.lasts_s), os.close(sends))).start()
        return self._channel

    def outcomes(self):
        with pytest.raises(ClosedError):
            self._channel.receive(SOON_S)
        self._channel.close()
        run = failed("the template process was killed") if self.was_stopped else self._run
        return [RankOutcome(run, 0.0, failed_with_another(run))]

    def stop(self):
        self.was_stopped = True
        self._stop.set()


@pytest.fixture
def work_list(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    monkeypatch.setattr("campaign.slurm.job.node_address", lambda: "127.0.0.3")
    monkeypatch.setattr(ranks, "_GRACE_S", 0.3)
    return tmp_path / "work-0.json"


@contextlib.contextmanager
def job_of(work_list, *templates, timeout_s=SOON_S):
    """A leader with the first of these templates, and a follower with each of the others."""
    leader = Leader(templates[0], work_list, len(templates), timeout_s)
    work = {"conduct": {"ranks_timeout_s": timeout_s}, "campaign_dir": str(work_list.parent)}
    threads = [
        threading.Thread(target=ranks.serve_first_rank, args=(work_list, work, rank, template))
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
    templates = [Slow(figures(rate=1 + rank), figures(rate=10 + rank)) for rank in range(3)]
    requests, logs = [{"of": rank} for rank in range(3)], [tmp_path / f"{rank}.log" for rank in range(3)]

    with job_of(work_list, *templates) as leader:
        leader.wait_for_ranks()
        outcomes = [leader.run(requests, logs, 5.0) for _ in range(2)]

    assert [[each.run["images_per_s"] for each in one] for one in outcomes] == [[1, 2, 3], [10, 11, 12]]
    assert [template.asked[0] for template in templates] == list(zip(requests, logs, [5.0] * 3, strict=True))
    assert leader.addresses == ["127.0.0.3"] * 3  # at which alone it listened


def test_a_rank_that_takes_longer_than_the_first_is_waited_for(work_list, tmp_path):
    with job_of(work_list, Slow(figures(rate=1)), Slow(figures(rate=2), lasts_s=0.6)) as leader:
        leader.wait_for_ranks()
        outcomes = leader.run([{}] * 2, [tmp_path / "log"] * 2, 5.0)

    assert [(each.run["images_per_s"], each.failed_with_another) for each in outcomes] == [(1, False), (2, False)]
    assert outcomes[0].ended_s < outcomes[1].ended_s >= 0.6


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_where_one_rank_fails_those_that_hang_are_stopped_and_only_it_has_failed_by_itself(work_list, tmp_path, bad):
    templates = [Slow(failed()) if rank == bad else Slow(lasts_s=SOON_S) for rank in range(3)]

    with job_of(work_list, *templates) as leader:
        leader.wait_for_ranks()
        outcomes = leader.run([{}] * 3, [tmp_path / "log"] * 3, 5.0)

    assert [each.failed_with_another for each in outcomes] == [rank != bad for rank in range(3)]
    assert outcomes[bad].run["end"] == {"code": "killed", "number": 9}


def test_a_stop_that_comes_when_the_run_has_ended_is_not_answered(work_list, tmp_path):
    templates = [Slow(figures(rate=1)), Slow(figures(rate=2))]

    with job_of(work_list, *templates) as leader:
        leader.wait_for_ranks()
        leader._followers[0].channel.send({"do": "stop"})  # noqa: SLF001 - as `run` does where a rank is late
        outcomes = leader.run([{}] * 2, [tmp_path / "log"] * 2, 5.0)

    assert [each.run["images_per_s"] for each in outcomes] == [1, 2]


def test_a_rank_whose_connection_ends_in_a_run_is_lost(work_list, tmp_path):
    leader = Leader(Slow(), work_list, 2, SOON_S)

    def come_and_go():
        with member(work_list) as channel:
            channel.send({"rank": 1, "boot": "b", "address": "a", "node": "n7"})
            channel.receive(SOON_S)

    gone = threading.Thread(target=come_and_go)
    gone.start()
    leader.wait_for_ranks()

    with pytest.raises(RankLostError, match="rank 1 on n7 is lost"):
        leader.run([{}] * 2, [tmp_path / "log"] * 2, 5.0)
    gone.join()
    leader.close()


def test_a_rank_that_stalls_is_named_and_no_other_one_is_waited_for_longer(work_list, tmp_path, monkeypatch):
    monkeypatch.setattr(ranks, "MARGIN_S", 0.3)
    leader, over = Leader(Slow(figures()), work_list, 3, SOON_S), threading.Event()
    work = {"conduct": {"ranks_timeout_s": SOON_S}, "campaign_dir": str(tmp_path)}

    def stall():
        with member(work_list) as channel:
            channel.send({"rank": 1, "node": "n7"})
            over.wait(SOON_S)

    with meanwhile(stall), meanwhile(lambda: ranks.serve_first_rank(work_list, work, 2, Slow(figures()))):
        leader.wait_for_ranks()
        began = time.perf_counter()
        with pytest.raises(RankLostError, match="rank 1 is lost: the run does not stop"):
            leader.run([{}] * 3, [tmp_path / "log"] * 3, SOON_S)
        assert time.perf_counter() - began < SOON_S
        over.set()
        leader.close()


def _file(work_list):
    return work_list.with_suffix(".ranks.json")


def _where(work_list):
    """Where the first rank listens, by its file."""
    eventually(_file(work_list).exists)
    return json.loads(_file(work_list).read_text())


@contextlib.contextmanager
def member(work_list):
    """Connect as a process of the job, which has read its file."""
    where = _where(work_list)
    with contextlib.closing(connect(where["address"], where["port"], where["secret"], SOON_S)) as channel:
        yield channel


@contextlib.contextmanager
def meanwhile(act):
    """Run a function beside the block, to its end."""
    thread = threading.Thread(target=act)
    thread.start()
    yield
    thread.join(SOON_S)
    assert not thread.is_alive()


@pytest.mark.parametrize("comes", [True, False])
def test_those_who_came_instead_of_a_rank_are_named_and_a_rank_that_comes_does_not_wait_for_them(
    comes, work_list, tmp_path, capfd
):
    leader, over = Leader(Slow(), work_list, 2, SOON_S if comes else 3.0), threading.Event()
    work = {"conduct": {"ranks_timeout_s": SOON_S}, "campaign_dir": str(tmp_path)}

    def come():
        where = _where(work_list)
        with silent(9, where["address"], where["port"]), contextlib.suppress(OSError):
            with contextlib.suppress(OSError):
                connect(where["address"], where["port"], "guessed", 1.0)
            ranks.serve_first_rank(work_list, work, 1, Slow()) if comes else over.wait(SOON_S)

    refused = contextlib.nullcontext() if comes else pytest.raises(EnvironmentFaultError)
    with meanwhile(come), contextlib.closing(leader), refused as caught:
        try:
            leader.wait_for_ranks()
        finally:
            over.set()

    words = capfd.readouterr().err if comes else caught.value.message
    start = (
        "other processes connected to 127.0.0.3:"
        if comes
        else "rank 1 of the job did not come within 3 s; other processes connected to"
    )
    assert words.startswith(start)
    assert "did not know the secret" in words
    assert "sent nothing" in words
    assert ("no rank waited for them" in words) is comes
    assert not _file(work_list).exists()


@pytest.mark.parametrize("hello", [{"rank": 0}, {"rank": 2}, {"rank": "1"}, {}])
def test_who_is_no_rank_of_the_job_is_sent_away_and_the_file_is_private_until_all_have_come(hello, work_list):
    modes, leader = [], Leader(Slow(), work_list, 2, SOON_S)

    def come():
        with member(work_list) as stranger:
            modes.append(_file(work_list).stat().st_mode & 0o777)
            stranger.send(hello)
            with pytest.raises(ClosedError):
                stranger.receive(SOON_S)
        with member(work_list) as channel:
            channel.send({"rank": 1})
            eventually(lambda: not _file(work_list).exists())

    with meanwhile(come):
        leader.wait_for_ranks()
        assert not _file(work_list).exists()
    leader.close()

    assert modes == [0o600]


def test_no_secret_goes_to_another_node_and_its_rank_has_that_of_the_hub(work_list, tmp_path, monkeypatch):
    sent, queue = [], Channel.queue
    monkeypatch.setattr(
        Channel, "queue", lambda self, value, *more: (sent.append(json.dumps(value)), queue(self, value, *more))
    )
    templates = [Slow(figures()), Slow(figures())]
    requests = [{"rank": {"rank": rank, "secret": "s"}} for rank in range(2)]

    with job_of(work_list, *templates) as leader:
        leader.wait_for_ranks()
        secret = leader._secret  # noqa: SLF001
        for request in requests:
            request["rank"]["secret"] = leader.hub_secret
        leader.run(requests, [tmp_path / "a.log", tmp_path / "b.log"], 5.0)

    assert [template.asked[0][0]["rank"]["secret"] for template in templates] == [derived_secret(secret, "hub")] * 2
    assert any('"do": "run"' in text for text in sent)
    assert not any(secret in text or leader.hub_secret in text for text in sent)


@pytest.mark.parametrize("name", ["../evil.log", "/tmp/evil.log", "link/evil.log"])  # noqa: S108 - none is made
def test_a_follower_writes_no_log_outside_the_campaign_s_folder(work_list, tmp_path, name):
    (tmp_path / "link").symlink_to("/")
    templates = [Slow(figures()), Slow(figures())]

    with job_of(work_list, *templates) as leader:
        leader.wait_for_ranks()
        outcomes = leader.run([{}] * 2, [tmp_path / "a.log", tmp_path / name], 5.0)

    assert templates[1].asked == []
    assert outcomes[1].run["end"]["code"] == "log_elsewhere"


def test_who_listens_where_a_killed_first_rank_did_is_not_obeyed_and_its_file_goes(work_list, tmp_path, capfd):
    """It does not know the secret; what it learns of it: tests/jobs/ranks/test_peers.py."""
    template, evil = Slow(figures()), tmp_path / "evil.log"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        where = {"address": "127.0.0.1", "port": listener.getsockname()[1], "secret": "5e" * 32}
        _file(work_list).write_text(json.dumps({**ranks.identify_start(), **where}))

        def pretend():
            with listener.accept()[0] as follower, contextlib.suppress(ConnectionResetError):
                order = json.dumps({"do": "run", "request": {}, "log": str(evil), "timeout_s": 1}).encode()
                follower.sendall(MAGIC + bytes(NONCE_BYTES) + bytes(32) + struct.pack("!II", 0, len(order)) + order)
                while follower.recv(1000):
                    pass

        with meanwhile(pretend):
            work = {"conduct": {"ranks_timeout_s": SOON_S}, "campaign_dir": str(tmp_path)}
            ranks.serve_first_rank(work_list, work, 1, template)

    assert (template.asked, evil.exists(), _file(work_list).exists()) == ([], False, False)
    assert "is no process of this job, because it does not know the job's secret" in capfd.readouterr().err


def test_the_file_of_a_first_rank_that_was_killed_is_removed_by_one_that_sees_it_gone(work_list, tmp_path):
    leader = Leader(Slow(), work_list, 3, 1.0)
    work = {"conduct": {"ranks_timeout_s": SOON_S}, "campaign_dir": str(tmp_path)}

    with meanwhile(lambda: ranks.serve_first_rank(work_list, work, 1, Slow())):
        with pytest.raises(EnvironmentFaultError):  # rank 2 never comes
            leader.wait_for_ranks()
        assert _file(work_list).exists()
        for each in leader._followers:  # noqa: SLF001 - as the kernel does when it is killed
            each.channel.close()

    assert not _file(work_list).exists()


def test_what_an_earlier_start_of_the_job_left_is_not_taken_for_this_one(work_list, tmp_path, capfd):
    before = {"job": "7", "restarts": 3, "address": "a", "port": 1, "secret": "s"}
    _file(work_list).write_text(json.dumps(before))

    ranks.serve_first_rank(work_list, {"conduct": {"ranks_timeout_s": 0.3}, "campaign_dir": str(tmp_path)}, 1, Slow())

    assert capfd.readouterr().err == "rank 1 ends: the first rank was not found\n"
    assert _file(work_list).exists()


@pytest.mark.parametrize(
    ("there", "error"),
    [
        ({"checksum": "c", "path": "/theirs"}, None),
        ({"checksum": "d"}, "rank 1 on n7 has other data"),
        (UsageError("no room", "less data"), "rank 1 on n7: no room"),
    ],
)
def test_each_node_makes_its_own_data_which_must_be_the_same(there, error, work_list, monkeypatch):
    def with_dataset(folder, item):
        if isinstance(there, Exception):
            raise there
        return {**item, "dataset": there}

    monkeypatch.setattr(ranks.session, "make_missing_data", with_dataset)
    with job_of(work_list, Slow(), Slow()) as leader:
        leader.wait_for_ranks()
        with pytest.raises(UsageError, match=error) if error else contextlib.nullcontext():
            leader.make_data({"id": "x"}, {"checksum": "c", "path": "/ours"})


@pytest.mark.parametrize("stalls", [False, True])
def test_a_node_that_works_for_long_is_waited_for_and_one_that_stalls_is_lost(stalls, work_list, monkeypatch):
    monkeypatch.setattr(ranks, "_RANK_LOST_AFTER_S", 0.5 if stalls else 3.0)
    monkeypatch.setattr(ranks, "_ALIVE_S", SOON_S if stalls else 0.05)

    def make(folder, item):
        time.sleep(1.0 if stalls else 3.5)
        return {**item, "dataset": {"checksum": "c"}}

    monkeypatch.setattr(ranks.session, "make_missing_data", make)
    with job_of(work_list, Slow(), Slow()) as leader:
        leader.wait_for_ranks()
        with pytest.raises(RankLostError, match="rank 1 on n7 is lost") if stalls else contextlib.nullcontext():
            leader.make_data({"id": "x"}, {"checksum": "c"})


def test_each_kernel_s_own_lock_is_held_once_for_all_ranks_on_it_and_let_go(work_list, tmp_path, monkeypatch):
    kernels, held = iter(["first", "other", "other"]), []
    is_first = lambda: threading.current_thread() is threading.main_thread()  # noqa: E731
    monkeypatch.setattr(ranks, "boot_id", lambda: "first" if is_first() else next(kernels, "first"))

    @contextlib.contextmanager
    def locked(path):
        held.append(path)
        yield
        held.remove(path)

    monkeypatch.setattr(ranks.locks, "acquire_lock", locked)
    with job_of(work_list, *[Slow() for _ in range(4)]) as leader:
        leader.wait_for_ranks()
        with leader.hold_storages(tmp_path / "lock"):
            during = [*held]

    assert (during, held) == ([tmp_path / "lock"], [])


def test_a_rank_that_cannot_hold_a_lock_or_make_data_says_why_and_is_not_lost(work_list, tmp_path, monkeypatch):
    def make(folder, item):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ranks.session, "make_missing_data", make)
    kernels = itertools.cycle(["first", "other"])  # of the follower, then of the first rank
    monkeypatch.setattr(ranks, "boot_id", lambda: next(kernels))
    with job_of(work_list, Slow(), Slow()) as leader:
        leader.wait_for_ranks()
        with pytest.raises(UsageError, match=r"rank 1 on n7: .*No space left") as no_space:
            leader.make_data({"id": "x"}, {"checksum": "c"})
        with pytest.raises(UsageError, match=r"rank 1 on n7: .*gone"), leader.hold_storages(tmp_path / "gone" / "lock"):
            pass

    assert no_space.value.hint.startswith("the disk is full: free some space")


@pytest.mark.parametrize("late", [0, 1])
def test_a_rank_that_is_stopped_because_it_is_late_does_not_say_that_another_one_failed(
    late, work_list, tmp_path, monkeypatch
):
    monkeypatch.setattr(ranks, "MARGIN_S", 0.5)
    templates = [Slow(lasts_s=SOON_S) if rank == late else Slow(figures()) for rank in range(2)]

    with job_of(work_list, *templates) as leader:
        leader.wait_for_ranks()
        outcomes = leader.run([{}] * 2, [tmp_path / "log"] * 2, SOON_S)

    assert outcomes[late].run["end"] == {"code": "rank_late", "seconds": 0.5}
    assert [each.failed_with_another for each in outcomes] == [False, False]
