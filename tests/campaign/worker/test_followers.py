"""The ranks of a job find one another by a file, do what the first one says, and end when it has gone."""

import contextlib
import json
import os
import socket
import struct
import threading
import time

import pytest

from campaign.errors import EnvironmentFaultError
from campaign.worker import followers
from campaign.worker import leader as leading
from campaign.worker.leader import Leader, RankLostError
from jobs.ranks import listener as listeners
from jobs.ranks.channel import MAGIC, NONCE_BYTES, Channel, connect, derived
from tests.campaign.fake_template import FakeTemplate, failed, figures
from tests.jobs.jobs_factory import eventually
from tests.jobs.ranks.strangers import as_nobody, needs_root, silent

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


def test_a_stop_that_comes_when_the_run_has_ended_is_not_answered(work_list, tmp_path):
    templates = [Slow(figures(rate=1)), Slow(figures(rate=2))]

    with job_of(work_list, *templates) as leader:
        leader.gather()
        leader._followers[0].channel.send({"do": "stop"})  # noqa: SLF001 - as `run` does where a rank is late
        outcomes = leader.run([{}] * 2, [tmp_path / "log"] * 2, 5.0)

    assert [each.run["images_per_s"] for each in outcomes] == [1, 2]


def test_a_rank_that_never_comes_is_named(work_list):
    leader = Leader(Slow(), work_list, 2, 0.2)

    with pytest.raises(EnvironmentFaultError, match=r"^rank 1 of the job did not come within 0\.2 s$"):
        leader.gather()
    leader.close()
    assert not _file(work_list).exists()


def test_a_rank_whose_connection_ends_in_a_run_is_lost(work_list, tmp_path):
    leader = Leader(Slow(), work_list, 2, SOON_S)

    def come_and_go():
        with member(work_list) as channel:
            channel.send({"rank": 1, "boot": "b", "address": "a", "node": "n7"})
            channel.receive(SOON_S)

    gone = threading.Thread(target=come_and_go)
    gone.start()
    leader.gather()

    with pytest.raises(RankLostError, match="rank 1 on n7 is lost"):
        leader.run([{}] * 2, [tmp_path / "log"] * 2, 5.0)
    gone.join()
    leader.close()


def _file(work_list):
    return work_list.with_suffix(".ranks.json")


@contextlib.contextmanager
def member(work_list):
    """Connect as a process of the job, which has read its file."""
    where = followers._found(_file(work_list), SOON_S)  # noqa: SLF001
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


@pytest.mark.parametrize("number", [9, 200])
def test_silent_connections_do_not_stop_a_job_and_are_told(work_list, tmp_path, capfd, number):
    leader = Leader(Slow(figures()), work_list, 2, SOON_S)

    def come():
        where = followers._found(_file(work_list), SOON_S)  # noqa: SLF001
        with silent(number, where["address"], where["port"]):
            followers.serve(
                work_list, {"conduct": {"ranks_timeout_s": SOON_S}, "campaign_dir": str(tmp_path)}, 1, Slow()
            )

    began = time.monotonic()
    with meanwhile(come):
        leader.gather()
        leader.close()

    assert time.monotonic() - began < listeners._HELLO_S  # noqa: SLF001 - nobody was waited for
    assert leader.addresses == ["127.0.0.1"] * 2
    assert f"127.0.0.1 said nothing ({number} times); no rank waited for them" in capfd.readouterr().err


def test_the_leader_listens_at_the_address_of_its_node_alone(work_list, monkeypatch):
    monkeypatch.setattr("campaign.slurm.job.node_address", lambda: "127.0.0.3")
    leader = Leader(Slow(), work_list, 2, 1.0)

    def look():
        where = followers._found(_file(work_list), SOON_S)  # noqa: SLF001
        assert where["address"] == "127.0.0.3"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", where["port"]))

    with meanwhile(look), pytest.raises(EnvironmentFaultError):
        leader.gather()
    leader.close()


def test_where_a_rank_is_missing_those_who_came_instead_are_named(work_list):
    leader = Leader(Slow(), work_list, 2, 1.0)

    def stranger():
        where = followers._found(_file(work_list), SOON_S)  # noqa: SLF001
        with silent(9, where["address"], where["port"]), contextlib.suppress(OSError):
            connect(where["address"], where["port"], "guessed", 0.1)
            time.sleep(1.5)

    with meanwhile(stranger), pytest.raises(EnvironmentFaultError) as caught:
        leader.gather()
    leader.close()

    words = caught.value.message
    assert "rank 1 of the job did not come within 1 s; others connected to 127.0.0.1:" in words
    assert "127.0.0.1 did not know the secret" in words
    assert "127.0.0.1 said nothing" in words


def test_the_file_is_private_and_goes_when_all_have_come(work_list):
    modes = []
    with job_of(work_list, Slow()) as leader:
        leader._size = 2  # noqa: SLF001

        def come():
            modes.append(eventually(lambda: _file(work_list).exists() and _file(work_list).stat().st_mode & 0o777))
            with member(work_list) as channel:
                channel.send({"rank": 1})
                eventually(lambda: not _file(work_list).exists())

        with meanwhile(come):
            leader.gather()
            assert not _file(work_list).exists()

    assert modes == [0o600]


def test_no_secret_goes_to_another_node_and_its_rank_has_that_of_the_hub(work_list, tmp_path, monkeypatch):
    sent, queue = [], Channel.queue
    monkeypatch.setattr(
        Channel, "queue", lambda self, value, *more: (sent.append(json.dumps(value)), queue(self, value, *more))
    )
    templates = [Slow(figures()), Slow(figures())]
    requests = [{"rank": {"rank": rank, "secret": "s"}} for rank in range(2)]

    with job_of(work_list, *templates) as leader:
        leader.gather()
        secret = leader._secret  # noqa: SLF001
        for request in requests:
            request["rank"]["secret"] = leader.hub_secret
        leader.run(requests, [tmp_path / "a.log", tmp_path / "b.log"], 5.0)

    assert [template.asked[0][0]["rank"]["secret"] for template in templates] == [derived(secret, "hub")] * 2
    assert any('"do": "run"' in text for text in sent)
    assert not any(secret in text or leader.hub_secret in text for text in sent)


@pytest.mark.parametrize("name", ["../evil.log", "/tmp/evil.log", "link/evil.log"])  # noqa: S108 - none is made
def test_a_follower_writes_no_log_outside_the_campaign_s_folder(work_list, tmp_path, name):
    (tmp_path / "link").symlink_to("/")
    templates = [Slow(figures()), Slow(figures())]

    with job_of(work_list, *templates) as leader:
        leader.gather()
        outcomes = leader.run([{}] * 2, [tmp_path / "a.log", tmp_path / name], 5.0)

    assert templates[1].asked == []
    assert outcomes[1].run["reason"].startswith("refused: the log ")


@needs_root
def test_a_fake_first_rank_of_another_user_learns_no_secret_and_makes_nobody_write(work_list, tmp_path, capfd):
    """It listens where the first rank of the job was, which was killed and has left its file."""
    told = tmp_path.parent / "told"
    evil = tmp_path / "evil.log"
    with socket.create_server(("127.0.0.1", 0)) as listener, told.open("wb") as heard:
        where = {
            **followers.this_start(),
            "address": "127.0.0.1",
            "port": listener.getsockname()[1],
            "secret": "5e" * 32,
        }
        _file(work_list).touch(0o600)
        _file(work_list).write_text(json.dumps(where))
        os.chmod(tmp_path, 0o700)  # noqa: PTH101

        def pretend():
            with contextlib.suppress(OSError):
                heard.write(_file(work_list).read_bytes())
            with listener.accept()[0] as follower:
                follower.sendall(MAGIC + bytes(NONCE_BYTES))
                heard.write(follower.recv(1000))
                order = json.dumps({"do": "run", "request": {}, "log": str(evil), "timeout_s": 1}).encode()
                follower.sendall(bytes(32) + struct.pack("!II", 0, len(order)) + order)
                with contextlib.suppress(ConnectionResetError):  # the order was not even read
                    while chunk := follower.recv(1000):
                        heard.write(chunk)
            heard.flush()

        template = Slow(figures())
        with as_nobody(pretend) as ended:
            followers.serve(
                work_list, {"conduct": {"ranks_timeout_s": SOON_S}, "campaign_dir": str(tmp_path)}, 1, template
            )
            assert ended() == 0

    assert len(told.read_bytes()) == 64  # a nonce and a proof
    assert b"5e5e" not in told.read_bytes()
    assert bytes.fromhex(where["secret"]) not in told.read_bytes()
    assert (template.asked, evil.exists(), _file(work_list).exists()) == ([], False, False)
    assert "is no process of this job: it does not know the job's secret" in capfd.readouterr().err


def test_the_file_of_a_first_rank_that_was_killed_is_removed_by_one_that_sees_it_gone(work_list, tmp_path):
    leader = Leader(Slow(), work_list, 3, 1.0)
    work = {"conduct": {"ranks_timeout_s": SOON_S}, "campaign_dir": str(tmp_path)}

    with meanwhile(lambda: followers.serve(work_list, work, 1, Slow())):
        with pytest.raises(EnvironmentFaultError):  # rank 2 never comes
            leader.gather()
        assert _file(work_list).exists()
        for each in leader._followers:  # noqa: SLF001 - as the kernel does when it is killed
            each.channel.close()

    assert not _file(work_list).exists()


def test_what_an_earlier_start_of_the_job_left_is_not_taken_for_this_one(work_list):
    before = {"job": "7", "restarts": 3, "address": "a", "port": 1, "secret": "s"}
    file = work_list.with_suffix(".ranks.json")
    file.write_text(json.dumps(before))

    with pytest.raises(OSError, match="was not found"):
        followers._found(file, 0.3)  # noqa: SLF001


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
