"""Real runs: what makes one count, and each proof seen to fail on purpose."""

import contextlib
import mmap
import os
import shutil

import numpy as np
import pytest
from msgspec.structs import asdict

from jobs import checks
from jobs.run import move_lists_to_file
from tests.jobs.jobs_factory import (
    DEAF,
    PAGE,
    check,
    make_request,
    other_process,
    passed,
    truncate,
    write_jpegs,
    write_slow_jpeg,
)

DEFAULTS = asdict(checks.Limits())
OTHER_READER = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY | os.O_DIRECT)
buffer = mmap.mmap(-1, 1 << 20)
size = os.fstat(fd).st_size
print("begun", flush=True)
while True:
    for offset in range(0, size, len(buffer)):
        os.preadv(fd, [buffer], offset)
"""
OTHER_HOG = """
print("begun", flush=True)
while True:
    pass
"""


@pytest.fixture
def data(disk):
    folder = disk / "data"
    # Large enough to dwarf what a process may fetch of its own code, which the kernel counts, too.
    write_jpegs(folder, 24, side=256)
    return folder


@pytest.fixture
def long_data(disk):
    """A dataset that keeps one thread busy for about a second."""
    folder = disk / "long"
    folder.mkdir()
    write_slow_jpeg(folder / "00.jpg")
    for number in range(1, 12):
        shutil.copy(folder / "00.jpg", folder / f"{number:02d}.jpg")
    return folder


def files(folder):
    return sorted(path for path in folder.iterdir() if path.suffix == ".jpg")


def test_pages_that_somebody_holds_in_memory_make_a_cold_run_invalid(execute, disk):
    held, data = [], disk / "data"
    write_jpegs(data, 24, side=768)  # 15 MB: more than what is fetched of libraries
    for path in files(data):
        with path.open("rb") as file:
            held.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    touched = [sum(mapped[::PAGE]) for mapped in held]

    figures = execute(data)

    assert len(touched) == 24
    assert (figures["status"], check(figures, "cold")["observed"]) == ("invalid", 1.0)
    assert (passed(figures)["cold"], passed(figures)["device_bytes"]) == (False, False)
    assert "cold: 100.00% of the pages were in memory" in figures["reason"]
    for mapped in held:
        mapped.close()


def test_files_that_cannot_be_read_are_counted_and_named_and_the_run_is_invalid(template, data, tmp_path):
    """Of a name that is no UTF-8, links that lead nowhere, empty, vanished, or a folder since they were listed."""
    torn = os.fsdecode(b"torn\xe9.jpg")
    (data / "000.jpg").rename(data / os.fsdecode(b"good\xe9.jpg"))
    (data / "001.jpg").rename(data / torn)
    truncate(data / torn)
    (data / "dangling.jpg").symlink_to(data / "nowhere")
    (data / "empty.jpg").touch()
    request = make_request(data, tmp_path / "held")
    (data / "003.jpg").unlink()
    (data / "004.jpg").unlink()
    (data / "004.jpg").mkdir()

    figures = template.run(request, tmp_path / "run.log", 60)

    errors = {bad["file"]: bad["error"] for bad in figures["unreadable"]}
    assert (figures["images"], figures["images_asked"], figures["image_errors"]) == (21, 26, 5)
    assert errors.keys() == {"dangling.jpg", "empty.jpg", "003.jpg", "004.jpg", torn}
    assert "Invalid JPEG data" in errors[torn]
    assert "No such file" in errors["dangling.jpg"]
    assert "No such file" in errors["003.jpg"]
    assert "directory" in errors["004.jpg"]
    assert figures["status"] == "invalid"
    assert "complete: 21 of 26 images delivered, 5 unreadable: " in figures["reason"]


def test_without_ignore_errors_a_truncated_image_ends_the_run_and_is_named_in_its_log(execute, data):
    truncate(data / "007.jpg")

    figures = execute(data, ignore_errors=False)

    assert figures["status"] == "failed"
    assert "Invalid JPEG data" in figures["log_tail"]
    assert str(data / "007.jpg") in figures["log_tail"]


def test_more_batches_than_there_are_images_make_a_run_incomplete(execute, data):
    figures = execute(data, iterations=7, batch_size=4)

    assert (figures["images"], figures["images_asked"], figures["image_errors"]) == (24, 28, 0)
    assert check(figures, "complete")["passed"] is False


@pytest.mark.parametrize(
    ("others", "what"), [([OTHER_READER], "other_device"), ([OTHER_HOG] * 2, "other_cpu")], ids=["traffic", "work"]
)
def test_traffic_of_others_on_the_device_or_their_work_makes_a_run_invalid(execute, long_data, disk, others, what):
    other, most = disk / "other", DEFAULTS[f"{what}_max"]
    other.write_bytes(bytes(64 << 20))
    os.sync()

    with contextlib.ExitStack() as stack:
        for script in others:
            stack.enter_context(other_process(script, str(other)))
        figures = execute(long_data, limits={**DEAF, f"{what}_max": most}, threads=1)

    quiet = check(figures, "quiet")
    assert (figures["status"], quiet["passed"]) == ("invalid", False)
    assert quiet["observed"][what] > most
    assert quiet["limit"][what] == most
    assert figures["reason"].startswith(f"quiet: others {'took' if what == 'other_device' else 'kept'} ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files that belong to another user")
@pytest.mark.parametrize("readable_io", [True, False])
def test_on_files_of_somebody_else_the_bytes_prove_the_cold_cache_or_nothing_does(job, scratch, readable_io):
    write_jpegs(scratch / "data", 24)

    figures = job(
        "execute_as_nobody", request=make_request(scratch / "data", scratch / "held"), readable_io=readable_io
    )

    proofs = [check(figures, rule)["passed"] for rule in ("cold", "device_bytes")]
    assert "does not show which pages" in check(figures, "cold")["message"]
    expected = ("valid", [None, True]) if readable_io else ("invalid", [None, None])
    assert (figures["status"], proofs) == expected, figures["reason"]
    if not readable_io:
        assert check(figures, "undelayed")["passed"] is None
        assert figures["device_bytes"] is None
        assert figures["reason"].startswith("cold: ")
        assert "; device_bytes: " in figures["reason"]


def test_the_garbage_collector_has_next_to_nothing_to_look_through_within_the_clock(job, data, tmp_path):
    (count,) = job("tracked_within_the_clock", request=make_request(data, tmp_path / "held", cache="as_is"))

    assert count < 10_000


LISTS = {"step_load_s": [0.5, 0.25, 0.125], "step_compute_s": [1.0, 2.0, 4.0]}


def test_the_lists_lie_in_the_file_and_the_figures_have_what_is_looked_at(tmp_path):
    metrics = move_lists_to_file({"wall_s": 9.0, **LISTS}, tmp_path / "run-3.npz")

    assert metrics == {"wall_s": 9.0, "steps": {"number": 3, "first_load_s": 0.5, "file": "run-3.npz", "error": None}}
    with np.load(tmp_path / "run-3.npz", allow_pickle=False) as kept:
        assert {name: kept[name].tolist() for name in kept} == LISTS


@pytest.mark.parametrize(
    ("losses", "lost", "passed"),
    [([2.5, 1.5, 0.5], None, True), ([2.5, None, 0.5], 2, False), ([2.5, 1.5, None], 3, False)],
)
def test_a_run_counts_by_its_first_loss_that_is_no_number(tmp_path, losses, lost, passed):
    metrics = move_lists_to_file({**LISTS, "step_loss": losses}, tmp_path / "run-1.npz")

    assert (metrics["steps"]["last_loss"], metrics["steps"]["lost_loss"]) == (losses[-1], lost)
    assert checks.finite_loss(metrics, checks.Limits())["passed"] is passed
    with np.load(tmp_path / "run-1.npz") as kept:
        np.testing.assert_array_equal(kept["step_loss"], np.array(losses, float))


def test_a_run_by_hand_keeps_its_lists_and_one_without_steps_gets_nothing():
    assert move_lists_to_file(LISTS, None) == {**LISTS, "steps": {"number": 3, "first_load_s": 0.5}}
    assert move_lists_to_file({"wall_s": 1.0}, None) == {"wall_s": 1.0}
