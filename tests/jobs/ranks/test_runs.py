"""Real runs on several ranks, forked from one template: what each reads, and what all of them give together."""

import contextlib
import subprocess

import pytest

from campaign.worker import together
from tests.jobs.jobs_factory import DEAF, make_request, pages, write_jpegs
from tests.lies import setup


@pytest.fixture
def together_on(template, tmp_path, disk):
    """Run `micro` on so many ranks; returns the run and the folder of its images, 23 files."""
    folder = disk / "data"
    write_jpegs(folder, 23, side=256)

    def run(nodes, sync, **changes):
        request = make_request(folder, tmp_path / "held", **changes)
        request["settings"] |= {"nodes": nodes, "sync": sync, "storage": {"root": str(disk)}}
        conduct = {"ranks_timeout_s": 60, "run_timeout_s": 60}
        request = {"trace": None, "profile": None, **request, "limits": {**DEAF, "time_error_max": 5.0}}
        return together.run(together.Here(template, nodes), request, tmp_path / "run.log", conduct), folder

    return run


@pytest.mark.long
@pytest.mark.shows("storage.node_root")
def test_ranks_with_a_mount_each_have_a_page_cache_each_and_one_that_reads_through_a_file_s_cache_has_none(
    template, tmp_path, disk, staged
):
    def made(stack):
        image, points = disk / "image", [disk / f"node{rank}" for rank in range(2)]
        with contextlib.ExitStack() as first:
            # From 512 MiB on, its blocks have the 4 KiB that direct I/O may need.
            write_jpegs(setup.disk(first, image, disk / "made", mib=600).point / "data" / "set", 20, side=256)
        for point in points:
            device = setup.attach(stack, image, "--read-only", "--direct-io=on", "--sector-size=4096")
            setup.mount(stack, f"/dev/{device}", point, "-o", "ro")
        return points

    points = staged(made)
    request = make_request(points[0] / "data" / "set", tmp_path / "held")
    pattern = str(disk / "node{rank}" / "data")
    request["settings"] |= {
        "nodes": 2,
        "sync": "none",
        "storage": {"root": str(points[0] / "data"), "node_root": pattern},
    }
    request = {"trace": None, "profile": None, **request, "limits": {**DEAF, "time_error_max": 5.0}}
    conduct = {"ranks_timeout_s": 60, "run_timeout_s": 60}

    found = together.run(together.Here(template, 2), request, tmp_path / "run.log", conduct)

    assert (found["reason"], found["private_caches"], found["images"]) == (None, 1, 20)
    names = sorted(path.name for path in points[0].glob("data/set/*.jpg"))
    for rank, point in enumerate(points):
        read = [name for name in names if in_memory(point / "data" / "set" / name)]
        assert read == names[rank::2]  # what the other one has read is not in this one's cache


def in_memory(file):
    """Whether pages of a file are in memory, by util-linux."""
    words = ["fincore", "--noheadings", "--output=PAGES", str(file)]
    return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout) > 0


@pytest.mark.parametrize("sync", ["none", "barrier", "allreduce"])
def test_ranks_read_every_file_once_between_them_and_the_record_has_each(together_on, sync):
    found, folder = together_on(2, sync=sync, batch_size=4)

    paths = list(folder.glob("*.jpg"))
    assert (found["status"], found["reason"]) == ("valid", None)
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
