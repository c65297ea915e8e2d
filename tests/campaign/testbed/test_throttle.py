"""Bounds of block devices on trees of files like those of the kernel: cgroup v1 and v2."""

from __future__ import annotations

import pytest

from campaign.errors import EnvironmentFaultError
from campaign.testbed import throttle
from campaign.testbed.spec import Speed
from campaign.testbed.throttle import CgroupV1Limits, CgroupV2Limits
from tests.campaign.testbed.testbeds import HDD, texts

LIMITS = HDD.limits()
LINE = "7:0 rbps=163000000 wbps=133140000 riops=max wiops=max"


def mounted(tmp_path, *lines):
    file = tmp_path / "mountinfo"
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


@pytest.fixture
def v1(tmp_path):
    """A function that finds a version 1 in which these bounds are in force."""
    folder = tmp_path / "cgroup v1/blkio"
    folder.mkdir(parents=True)
    point = str(folder).replace(" ", r"\040")
    mountinfo = mounted(
        tmp_path,
        "25 20 0:22 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
        f"26 20 0:23 / {point} rw,relatime - cgroup cgroup rw,blkio",
    )

    def find(**files):
        for kind in throttle.KINDS:
            (folder / f"blkio.throttle.{kind}_device").write_text(files.get(kind, ""))
        return throttle.find_throttle(mountinfo)

    return find


@pytest.fixture
def v2(tmp_path):
    """A function that finds a version 2 with groups as systemd makes them."""
    root = tmp_path / "cgroup"

    def find(*, handed_down="cpu io memory", own="0::/user.slice/session.scope", controllers="cpu io memory", **groups):
        root.mkdir()
        (root / "cgroup.controllers").write_text(f"{controllers}\n")
        (root / "cgroup.subtree_control").write_text(f"{handed_down}\n")
        for name, lines in groups.items():
            group = root / f"{name}.slice"
            group.mkdir()
            (group / "cgroup.procs").write_text("")
            (group / "io.max").write_text(lines)
        (root / "init.scope.txt").write_text("no group")
        (tmp_path / "own").write_text(f"{own}\n")
        mountinfo = mounted(tmp_path, f"26 20 0:23 / {root} rw - cgroup2 cgroup2 rw,nsdelegate")
        return throttle.find_throttle(mountinfo, tmp_path / "own")

    return find


def test_version_1_is_found_by_its_controller(v1):
    found = v1(read_bps="7:0 163000000\n253:0 5\n", write_iops="7:0 9\n")

    assert isinstance(found, CgroupV1Limits)
    assert found.limits == {"7:0": {"read_bps": 163_000_000, "write_iops": 9}, "253:0": {"read_bps": 5}}


def test_version_1_gets_a_line_for_each_bound_that_is_another(v1):
    found = v1(read_bps="7:0 163000000\n", write_iops="7:0 9\n")

    steps = [(step.path.name, step.text) for step in found.steps("7:0", LIMITS)]

    assert steps == [
        ("blkio.throttle.write_bps_device", "7:0 133140000"),
        ("blkio.throttle.write_iops_device", "7:0 0"),
    ]


def test_bounds_that_are_in_force_need_nothing(v1, v2):
    one = v1(read_bps="7:0 163000000\n", write_bps="7:0 133140000\n")
    two = v2(user=f"{LINE}\n", system=f"7:1 rbps=5 wbps=max riops=max wiops=max\n{LINE}\n")

    assert one.steps("7:0", LIMITS) == two.steps("7:0", LIMITS) == []
    assert one.steps("7:9", {}) == two.steps("7:9", {}) == []


def test_version_2_throttles_each_group_below_the_root(v2, tmp_path):
    found = v2(user="", system=f"{LINE}\n", machine="7:0 rbps=5 wbps=max riops=max wiops=max\n")

    assert isinstance(found, CgroupV2Limits)
    assert found.doubts == ()
    assert texts([found.steps("7:0", LIMITS)]) == [
        f"echo '{LINE}' > {tmp_path}/cgroup/{name}.slice/io.max" for name in ("machine", "user")
    ]


def test_version_2_takes_bounds_away_where_there_are_any(v2):
    steps = v2(user="", system=f"{LINE}\n").steps("7:0", {})

    assert [(step.path.parent.name, step.text) for step in steps] == [
        ("system.slice", "7:0 rbps=max wbps=max riops=max wiops=max")
    ]


def test_version_2_hands_the_controller_down_first(v2):
    found = v2(handed_down="cpu memory", user="")

    steps = found.steps("7:0", {"read_iops": 80})

    assert [(step.path.name, step.text) for step in steps] == [
        ("cgroup.subtree_control", "+io"),
        ("io.max", "7:0 rbps=max wbps=max riops=80 wiops=max"),
    ]


def test_version_2_says_where_write_back_is_not_throttled(v2):
    assert v2(handed_down="cpu io", user="").doubts == (
        "without the controller memory, buffered writes are not throttled",
    )


def test_in_a_container_its_own_root_group_is_throttled(v2, tmp_path):
    (tmp_path / "cgroup").mkdir()
    (tmp_path / "cgroup/io.max").write_text("")
    (tmp_path / "cgroup").joinpath("cgroup.controllers").write_text("io memory")

    found = throttle.find_throttle(
        mounted(tmp_path, f"26 20 0:23 / {tmp_path}/cgroup rw - cgroup2 cgroup2 rw"), tmp_path / "x"
    )

    assert [step.path for step in found.steps("7:0", LIMITS)] == [tmp_path / "cgroup/io.max"]


def test_a_process_in_the_root_group_cannot_be_throttled_and_is_told_so(v2):
    found = v2(own="0::/", user=f"{LINE}\n")

    with pytest.raises(EnvironmentFaultError, match="in the root group of cgroup v2"):
        found.steps("7:1", LIMITS)
    assert found.steps("7:0", {}) != []  # what was left there can still be cleared


@pytest.mark.parametrize("controllers", ["cpu memory", ""])
def test_where_nothing_can_be_throttled_only_what_asks_for_it_is_refused(v2, controllers):
    found = v2(controllers=controllers)

    assert found.steps("7:0", Speed(None, None).limits()) == []
    with pytest.raises(EnvironmentFaultError, match="cannot limit block devices here"):
        found.steps("7:0", LIMITS)


@pytest.mark.parametrize("limits", [LIMITS, {"read_bps": 5, "write_iops": 7}, {}])
def test_what_is_written_is_in_force_when_it_is_read_again(v2, tmp_path, limits):
    for step in v2(user="", system=f"{LINE}\n").steps("7:0", limits):
        step.do()

    again = throttle.find_throttle(tmp_path / "mountinfo", tmp_path / "own")

    assert again.steps("7:0", limits) == []
