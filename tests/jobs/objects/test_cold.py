"""What proves that objects came from the disk of their servers, and what is said where nothing does."""

import pytest

from jobs.checks import Limits, cold_at_server, judge

MB = 1_000_000


HIDDEN = "hidden"


def run_of(device=None, lowest=None, store=None, read=100 * MB, came=0):
    """The figures of a run; what is None cannot be seen, of a store that is HIDDEN only its account."""
    account = None if store == HIDDEN else store
    servers = {} if store is None else {"ceph-osd": {"processes": 1, "cpu_s": 1.0, "read_bytes": account}}
    return {
        "bytes_read": read, "device": device and "loop8", "device_read_bytes": device,
        "lowest_device": lowest and "vda", "lowest_read_bytes": lowest,
        "objects": {"endpoint": "http://host", "servers": servers, "bytes": came},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("run", "passed"),
    [
        (run_of(), None),
        (run_of(store=100 * MB), None),  # of which disk, nobody knows
        (run_of(device=101 * MB), None),  # for others, maybe: the servers are elsewhere
        (run_of(device=1 * MB), None),
        (run_of(device=101 * MB, store=HIDDEN), None),
        (run_of(device=1 * MB, store=HIDDEN), False),
        (run_of(device=101 * MB, store=101 * MB), True),
        (run_of(device=101 * MB, store=101 * MB, came=130 * MB), False),  # fetched ahead, and not taken
        (run_of(device=101 * MB, lowest=101 * MB, store=101 * MB), True),
        (run_of(device=89 * MB, store=101 * MB), False),
        (run_of(device=101 * MB, store=1 * MB), False),  # others have read the disk
        (run_of(device=101 * MB, lowest=1 * MB, store=101 * MB), False),  # the loop device's file was in memory
        (run_of(device=101 * MB, store=101 * MB, read=0), None),
    ],
)
def test_the_least_of_what_counts_the_bytes_decides(run, passed):
    check = cold_at_server(run, Limits())

    assert check["passed"] is passed
    assert check["observed"] is None or (check["observed"] <= check["limit"]) is passed


@pytest.mark.parametrize(("served_here", "passed"), [(True, None), (False, True)])
def test_snapshots_that_are_read_back_from_servers_of_this_machine_leave_nothing_proved(served_here, passed):
    run = {**run_of(device=900 * MB, store=900 * MB), "targets": [{"role": "fast"}, {"served_here": served_here}]}

    assert cold_at_server(run, Limits())["passed"] is passed
    assert cold_at_server({**run, "device_read_bytes": MB}, Limits())["passed"] is False


def test_what_cannot_be_seen_is_no_fault_of_a_run_on_objects():
    figures = {
        **run_of(), "images": 1, "images_asked": 1, "image_errors": 0, "wall_s": 1.0, "load_s": 1.0, "compute_s": 0.0,
        "checkpoint_s": 0.0, "other_s": 0.0, "elapsed_s": 1.0, "kernel_s": 1.0, "device_use": None, "other_cpu": 0.0,
        "wall_parts": ["load_s", "compute_s", "checkpoint_s", "other_s"],
    }  # fmt: skip

    checks, reason = judge(figures, "cold", Limits())

    assert reason is None
    assert [check["passed"] for check in checks if check["rule"] == "cold"] == [None]
    assert "cannot be seen from here" in checks[0]["message"]
