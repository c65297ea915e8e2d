"""Real runs on several ranks, forked from one template: what each reads, and what all of them give together."""

import contextlib
import threading

import psutil
import pytest

from campaign.worker import together
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
        found = together.run(together.Here(template, nodes), request, tmp_path / "run.log", conduct)
        return judged(found, request), folder

    return run


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
