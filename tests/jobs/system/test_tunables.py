"""What else can change the speed of a run: each is changed for real, in a process or on a device of its own.

Which library answers the calls of a process, by libraries that are preloaded for real.
"""

import contextlib
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.observe.conditions import describe_node
from jobs.system import tunables
from jobs.system.cgroup import IoLimit
from jobs.system.tunables import interposed_calls, memory_allocator
from tests.jobs.jobs_factory import ROOT
from tests.lies import setup
from tests.lies.lie import MissingError

SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}.get(platform.machine())
ASK = "import json; from jobs.system import tunables; print(json.dumps(tunables.{}()))"


def asked(what, *inside, **environment):
    """Return what a process says of itself that is started by the command `inside`."""
    if inside and not shutil.which(inside[0]):
        pytest.skip(f"there is no {inside[0]}")
    command = [*inside, sys.executable, "-c", ASK.format(what)]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)} | environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return json.loads(done.stdout)


@pytest.fixture
def disk(tmp_path):
    """A file system on a loop device; a function that mounts it with options returns it."""
    with contextlib.ExitStack() as stack:

        def make(*options, fs="ext4", mib=16):
            try:
                return setup.disk(stack, tmp_path / "disk.img", tmp_path / "disk", *options, fs=fs, mib=mib)
            except MissingError as error:
                pytest.skip(str(error))

        yield make


@pytest.mark.parametrize(
    ("inside", "name", "value"),
    [
        (("nice", "-n", "7"), "nice", os.getpriority(os.PRIO_PROCESS, 0) + 7),
        (("ionice", "-c", "2", "-n", "5"), "io_priority", "best effort 5"),
        (("ionice", "-c", "3"), "io_priority", "idle"),
        (("chrt", "--batch", "0"), "scheduling", "batch"),
        (("strace", "-o", "/dev/null", "-e", "trace=none"), "tracer", "strace"),
    ],
)
def test_how_the_kernel_treats_a_process_is_seen(inside, name, value):
    assert asked("describe_process", *inside)[name] == value
    assert asked("describe_process").get(name) != value


def test_variables_that_libraries_obey_are_seen_and_no_others():
    secret = {"TF_VAR_password": "x", "TF_TOKEN_app": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    ours = {"TF_CPP_MIN_LOG_LEVEL": "1", "TF_CONFIG": "{}"}
    theirs = {"MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1", "TF_ENABLE_ONEDNN_OPTS": "0", "LD_BIND_NOW": "1"}
    theirs |= {"ONEDNN_MAX_CPU_ISA": "SSE41", "PYTHONTRACEMALLOC": "1", "CUDA_LAUNCH_BLOCKING": "1"}

    found = asked("describe_process", **secret, **ours, **theirs)

    assert theirs.items() <= found.items()
    assert not {*secret, *ours} & {*found}


def test_a_library_that_may_bind_calls_anew_counts_as_one_that_answers_any():
    assert asked("describe_process", LD_AUDIT="/no/such.so")["interposed"] == "any call: /no/such.so"


def test_a_process_that_takes_memory_from_all_nodes_in_turn_is_seen():
    call = f"ctypes.CDLL(None).syscall({SET_MEMPOLICY}, 3, ctypes.byref(ctypes.c_ulong(1)), 2)"
    inside = (sys.executable, "-c", f"import ctypes, os, sys; {call}; os.execv(sys.argv[1], sys.argv[1:])")

    assert asked("describe_process", *inside)["memory_policy"] == "interleave"
    assert "memory_policy" not in asked("describe_process")


def test_states_of_idle_processors_that_are_disabled_are_seen(tmp_path, monkeypatch):
    state = Path("/sys/devices/system/cpu/cpu0/cpuidle/state1/disable")
    if os.geteuid() or not state.exists():  # a virtual machine may have none: then files that lie as sysfs has them
        state = tmp_path / state.relative_to("/sys/devices/system/cpu")
        state.parent.mkdir(parents=True)
        state.write_text("0\n")
        monkeypatch.setitem(tunables._MACHINE_FILES, "cpu_idle_disabled", f"{tmp_path}/cpu*/cpuidle/state*/disable")  # noqa: SLF001
    before, now = tunables.describe_machine(), "1" if state.read_text().strip() == "0" else "0"

    try:
        state.write_text(now)
        after = tunables.describe_machine()
    finally:
        state.write_text("0" if now == "1" else "1")

    assert {name for name in after if after[name] != before.get(name)} == {"cpu_idle_disabled"}


def test_a_long_value_stands_there_by_its_checksum():
    paths = [asked("describe_process", LD_LIBRARY_PATH="/x" * 200 + end)["LD_LIBRARY_PATH"] for end in ("", "y", "")]

    assert paths[0] == paths[2] != paths[1]
    assert "400 letters" in paths[0]
    assert len(paths[1]) < 100


def test_a_process_on_one_processor_is_seen():
    core = str(min(os.sched_getaffinity(0)))

    assert asked("describe_machine", "taskset", "-c", core)["cpus"] == "1 of 1 core"
    assert tunables.describe_machine()["cpus"].startswith(f"{len(os.sched_getaffinity(0))} of ")


@pytest.mark.parametrize(("given", "cpus"), [("1", "those of the job"), ("2", "1 of 1 core")])
def test_a_job_has_as_many_processors_as_its_cell_has_threads_and_only_fewer_are_a_condition(given, cpus):
    core = str(min(os.sched_getaffinity(0)))

    found = asked("describe_machine", "taskset", "-c", core, SLURM_CPUS_PER_TASK=given)

    assert found["cpus"] == cpus
    assert "memory_limit_bytes" not in found


def test_of_a_list_of_choices_the_one_in_force_is_taken_and_of_several_files_each_value(tmp_path):
    texts = {"a": "always [madvise] never\n", "b": "madvise\n", "c": "powersave\n", "d": ""}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)

    assert tunables._first_lines(tmp_path / name for name in texts) == "madvise, powersave"  # noqa: SLF001
    assert tunables._first_lines([tmp_path / "d", tmp_path / "none"]) is None  # noqa: SLF001


@pytest.fixture
def damon(tmp_path, monkeypatch):
    """A function that lays out DAMON's files as sysfs does: the state and the actions of each kdamond, the module."""
    monkeypatch.setattr(tunables, "_KDAMONDS", tmp_path)
    monkeypatch.setattr(tunables, "_DAMON_RECLAIM", tmp_path / "enabled")

    def lay_out(kdamonds, module):
        for number, (state, *actions) in enumerate(kdamonds):
            (tmp_path / f"{number}").mkdir()
            (tmp_path / f"{number}" / "state").write_text(f"{state}\n")
            for scheme, action in enumerate(actions):
                folder = tmp_path / f"{number}/contexts/0/schemes/{scheme}"
                folder.mkdir(parents=True)
                (folder / "action").write_text(f"{action}\n")
        if module:
            (tmp_path / "enabled").write_text(f"{module}\n")

    return lay_out


@pytest.mark.parametrize(
    ("kdamonds", "module", "switches"),
    [
        ([], None, []),
        ([("on", "stat", "pageout"), ("on", "lru_prio"), ("off", "pageout"), ("on",)], "N", ["0/state"]),
        ([("off", "pageout")], "Y", ["enabled"]),
        ([("on", "pageout")] * 2, "Y", ["0/state", "1/state", "enabled"]),
    ],
)
def test_a_kernel_that_takes_pages_out_of_memory_early_is_told_and_is_no_condition(
    tmp_path, damon, kdamonds, module, switches
):
    before = tunables.describe_machine()

    damon(kdamonds, module)

    assert describe_node(tmp_path)["proactive_reclaim"] == [f"{tmp_path}/{each}" for each in switches]
    # A host that switches it on and off every few seconds would make runs invalid by chance.
    assert tunables.describe_machine() == before


def test_the_queue_of_a_device_is_seen_and_that_of_the_one_below_apart(disk):
    made = disk()
    before = tunables.describe_storage(made.point)

    (Path("/sys/block", made.device, "queue/read_ahead_kb")).write_text("4")
    after = tunables.describe_storage(made.point)

    assert {name for name in before if before[name] != after.get(name)} == {"read_ahead_kb"}
    assert after["read_ahead_kb"] == "4"
    assert {"scheduler", "nr_requests", "dio", "below.scheduler", "below.read_ahead_kb"} <= {*before}
    assert after == tunables.describe_storage(Path("/dev", made.device)) | {
        name: after[name] for name in ("mount",)
    }  # a baseline may read the device


def test_what_the_scheduler_of_a_device_is_set_to_is_seen(disk):
    made = disk()
    queue = Path("/sys/block", made.device, "queue")
    (queue / "scheduler").write_text("mq-deadline")
    before = tunables.describe_storage(made.point)

    (queue / "iosched/read_expire").write_text("20")
    after = tunables.describe_storage(made.point)
    (queue / "scheduler").write_text("none")  # the device of a loop stays, and its settings with it

    assert {name for name in after if after[name] != before.get(name)} == {"scheduler_settings"}
    assert "read_expire 20," in after["scheduler_settings"]


def test_how_it_is_mounted_is_seen_those_options_too_that_the_file_system_has_everywhere(disk):
    made = disk()
    before = tunables.describe_storage(made.point)["mount"]

    setup.call("mount", "-o", "remount,commit=7,noatime", made.point)
    after = tunables.describe_storage(made.point)["mount"]

    assert "commit=7" not in before
    assert {"commit=7", "noatime"} <= {*after.removeprefix("ext4 ").split(",")}


def test_attributes_that_change_how_is_written_are_seen_and_no_others(disk):
    folder = disk().point / "folder"
    folder.mkdir()
    (folder / "file").touch()

    assert "attributes" not in tunables.describe_storage(folder)
    setup.call("chattr", "+Sd", folder)
    assert tunables.describe_storage(folder)["attributes"] == "S"


def test_how_far_a_file_system_without_a_device_of_its_own_reads_ahead_is_seen(disk):
    made = disk(fs="btrfs", mib=128)
    before = tunables.describe_storage(made.point)
    (bdi,) = (each.parents[1] / "bdi" for each in Path("/sys/fs/btrfs").glob(f"*/devices/{made.device}"))

    (bdi / "read_ahead_kb").write_text("8")

    assert tunables.describe_storage(made.point) == before | {"file_system_read_ahead_kb": "8"}


def test_limits_of_control_groups_on_reads_and_writes_are_seen(tmp_path, monkeypatch):
    found = [IoLimit("sda", "write_iops", 7, "/group"), IoLimit("sdb", "read_bps", 5, "/group")]
    assert "io_limits" not in tunables.describe_storage(tmp_path)

    monkeypatch.setattr(tunables, "io_limits", lambda _: found)

    assert tunables.describe_storage(tmp_path)["io_limits"] == "read_bps 5, write_iops 7"


ASK_LIBRARIES = (
    "import json; from jobs.system.tunables import *; print(json.dumps([interposed_calls(), memory_allocator()]))"
)


@pytest.fixture
def preloaded(tmp_path):
    """A function that preloads C source into a process; returns the library, and what that process says."""
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler")

    def ask(source):
        library = tmp_path / "libother.so"
        (tmp_path / "other.c").write_text(source)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "other.c"], check=True)
        environment = os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", ASK_LIBRARIES], env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        return str(library), json.loads(done.stdout)

    return ask


def test_of_a_process_of_its_own_all_calls_are_the_c_librarys():
    assert (interposed_calls(), memory_allocator()) == ({}, None)


FREES = (
    "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stddef.h>\n"
    'void free(void *room) { void (*real)(void *) = (void (*)(void *))dlsym(RTLD_NEXT, "free"); real(room); }\n'
)
READS = "long pread(int f, void *to, long size, long at) { return 0; } int fsync(int f) { return 0; }"


@pytest.mark.parametrize(
    ("source", "calls", "allocates"),
    [
        (FREES + READS, ["pread", "fsync"], True),
        ("int stat(const char *of, void *to) { return 0; }", ["stat"], False),  # each read of a file begins so
        ("int other(void) { return 1; }", [], False),
    ],
)
def test_calls_of_a_preloaded_library_are_named_with_it_and_another_allocator_apart(
    source, calls, allocates, preloaded
):
    library, found = preloaded(source)

    assert found == [dict.fromkeys(calls, library), library if allocates else None]
