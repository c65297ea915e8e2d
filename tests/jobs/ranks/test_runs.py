"""Real runs on several ranks, forked from one template: what each reads, and what all of them give together."""

import contextlib
import os
import signal
import threading
from functools import partial

import psutil
import pytest

from campaign.worker import runner
from jobs.ranks.rank import join_ranks
from tests.jobs.jobs_factory import DEAF, judged, make_request, pages, write_jpegs


@pytest.fixture
def together_on(template, tmp_path, disk):
    """Run `micro` on so many ranks; returns the run and the folder of its images, 23 files."""
    folder = disk / "data"
    write_jpegs(folder, 23, side=256)

    def run(nodes, sync, **changes):
        request = make_request(folder, tmp_path / "held", **changes)
        request["settings"] |= {"nodes": nodes, "sync": sync, "storage": {"root": str(disk)}}
        conduct = {"ranks_timeout_s": 60, "run_timeout_s": 60}
        request["limits"] = {**DEAF, "time_error_max": 5.0}
        found = runner.run_on_ranks(runner.local_ranks(template, nodes), request, tmp_path / "run.log", conduct)
        return judged(found, request), folder

    return run


def test_a_rank_that_stalls_in_a_run_is_named_and_the_others_end_with_the_limit_of_the_run(template, tmp_path):
    places = runner.local_ranks(template, 3)._replace(run_ranks=partial(template.run_together, job=f"{__name__}:stall"))
    request = {"settings": {"sync": "barrier", "storage": {}}, "dataset": str(tmp_path), "trace": None}

    found = runner.run_on_ranks(places, request, tmp_path / "run.log", {"ranks_timeout_s": 60, "run_timeout_s": 5})

    waited = "rank 1 did not come to the meeting point barrier"
    assert found["end"] == {"code": "timed_out", "seconds": 5, "rank": found["end"]["rank"], "late": waited}


def stall(request):
    """Begin with the other ranks; the second one is stopped, and nobody lets it go on."""
    with join_ranks(request) as rank:
        rank.start()
        if rank.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        rank.barrier()
    return {}


@contextlib.contextmanager
def listened():
    """The addresses at which this process and its children listen while the block runs."""
    addresses, over = set(), threading.Event()

    def look():
        while not over.wait(0.02):
            for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    open_ = process.net_connections(kind="inet")
                    addresses.update(each.laddr.ip for each in open_ if each.status == psutil.CONN_LISTEN)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield addresses
    finally:
        over.set()
        watcher.join()


@pytest.mark.parametrize("sync", ["none", "barrier", "allreduce", "ring"])
def test_ranks_read_every_file_once_between_them_and_only_the_ring_listens_at_other_addresses(together_on, sync):
    with listened() as addresses:
        found, folder = together_on(2, sync=sync, batch_size=4)

    assert "127.0.0.1" in addresses
    assert (addresses == {"127.0.0.1"}) == (sync != "ring")
    paths = list(folder.glob("*.jpg"))
    assert (found["status"], found["reason"]) == ("valid", None), found["reason"]
    assert found["images"] == len(paths)
    assert found["bytes_read"] == sum(path.stat().st_size for path in paths)
    assert found["device_bytes"] >= pages(paths) * 4096
    assert [rank["figures"]["images"] for rank in found["ranks"]] == [12, 11]
    assert found["private_caches"] == 0
    for rank in found["ranks"]:
        own = rank["figures"]
        assert sum(own[part] for part in own["wall_parts"]) == pytest.approx(own["wall_s"], rel=0.2)
        assert ("sync_s" in own) == (sync != "none")
        assert own["wall_s"] <= rank["ended_s"]
