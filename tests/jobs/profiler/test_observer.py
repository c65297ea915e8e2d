"""A run that is profiled: what stands in its figures, and the check that it saw everything."""

import subprocess

import pytest

from jobs import checks
from jobs.events import posix_window
from jobs.events.posix_window import MODES
from jobs.profiler import Profile, report
from tests.jobs.jobs_factory import check, make_request


@pytest.mark.parametrize("mode", MODES)
def test_a_run_tells_every_call_on_its_data(mode, shared_images, template, tmp_path):
    request = make_request(shared_images, tmp_path / "held")
    request["settings"]["profile"] = {"posix": mode}
    request["profile"] = str(tmp_path / "profile-0.npz")

    run = template.run(request, tmp_path / "run.log", 60)

    found = run["profile"]
    assert check(run, "profile_complete")["passed"] is True
    assert (found["mode"], found["file"], found["blind_spot"]) == (mode, "profile-0.npz", None)
    assert (found["opens"], found["reads"], found["bytes_read"]) == (24, 48, run["bytes_read"])
    assert found["wall_s"] >= run["wall_s"]
    window = posix_window.read_window(tmp_path / "profile-0.npz")
    assert sum(each["POSIX_BYTES_READ"] for each in window.files.values()) == run["bytes_read"]


def _child(path):
    subprocess.run(["cat", path], stdout=subprocess.DEVNULL, check=True)


def _many(path):
    for _ in range(20):
        path.read_bytes()


@pytest.mark.parametrize(("read", "why"), [(_child, "read unseen"), (_many, "profile.posix=counters"), (str, None)])
def test_a_profile_that_is_not_complete_is_no_proof(read, why, tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(200_000))
    with Profile(events=30) as profile:
        read(file)

    judged = checks.profile_complete({"profile": report.window_metrics(profile.window)}, checks.Limits())

    assert judged["passed"] is (why is None)
    assert why is None or why in judged["message"]
