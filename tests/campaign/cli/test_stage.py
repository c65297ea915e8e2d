"""`python -m campaign stage` as its user speaks it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from campaign.cli import stage
from campaign.errors import UsageError
from campaign.staging import observed_runs
from jobs.events import posix_window
from jobs.profiler import Profile


@pytest.fixture
def profile(tmp_path):
    """The profile of a program that read ten files, which are in memory now."""
    data = tmp_path / "data"
    data.mkdir()
    for number in range(10):
        (data / f"{number}.bin").write_bytes(bytes(20_000))
    with Profile("counters", only=[data]) as seen:
        for path in sorted(data.iterdir()):
            path.read_bytes()
    seen.save(tmp_path / "window.npz")
    return tmp_path / "window.npz"


@pytest.fixture
def _uncounted(monkeypatch):
    """A file system of which the kernel does not count what it fetches."""
    monkeypatch.setattr(observed_runs, "has_device", lambda _: False)


@pytest.mark.usefixtures("_uncounted")
def test_where_the_fast_storage_is_no_other_nothing_is_advised_and_nothing_is_copied(profile, tmp_path, capsys):
    words = f"plan {profile} --data {tmp_path}/data --fast {tmp_path} --out {tmp_path}/p".split()

    assert stage.main([*words, "--capacity", "1MB", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["files"], told["bytes"], told["capacity_bytes"], told["from_memory"]) == (10, 200_000, 1_000_000, None)
    assert stage.main(words) == 0
    shown = capsys.readouterr().out
    assert "staging cannot help" in shown
    assert "how many bytes came from memory is not known" in shown
    with pytest.raises(UsageError, match="the plan has no file for the rule advised"):
        stage.main(["apply", str(tmp_path / "p")])
    assert not list(Path(tmp_path, "staged").glob("*/*.bin"))


@pytest.fixture
def counted(profile, monkeypatch):
    """A function: save the profile again with these seconds of each file's reads, and what the kernel fetched."""
    monkeypatch.setattr(observed_runs, "has_device", lambda _: True)

    def save(seconds, fetched):
        window = posix_window.read_window(profile)
        rows = [place for place, path in enumerate(window.paths) if path.endswith(".bin")]
        window.counters["read_time"][rows] = [int(each * 1e9) for each in seconds]
        posix_window.write_window(profile, replace(window, device_bytes=fetched))
        return profile

    return save


def test_of_a_profile_what_came_from_memory_is_left_out_and_what_is_sure_of_it_is_told(counted, tmp_path, capsys):
    path = counted([1e-5, 5e-3, 2e-5, 6e-3, 1e-5, 4e-3, 1e-5, 5e-3, 2e-5, 4e-3], 5 * 20_480)
    words = f"plan {path} --data {tmp_path}/data --fast {tmp_path} --out {tmp_path}/p".split()

    assert stage.main(words) == 0

    shown = " ".join(capsys.readouterr().out.split())
    plan = json.loads((tmp_path / "p" / "plan.json").read_text())
    assert [name for name, *_ in plan["listed"]] == [f"{number}.bin" for number in (1, 3, 5, 7, 9)]
    assert plan["from_memory"]["sure_bytes"] == 200_000 - 5 * 20_480
    assert "certain, by the kernel's count: at least 0.1 MB more came from memory" in shown
    assert "inferred: these are 5 files (0.1 MB)" in shown


def test_a_profile_of_cold_reads_is_planned_whole(counted, tmp_path):
    path = counted([5e-3] * 9 + [1e-5], 190_000)

    assert observed_runs.observe_profile(path, tmp_path / "data").names == [f"{number}.bin" for number in range(10)]


def test_a_profile_of_reads_from_memory_is_refused_with_the_cure(counted, tmp_path):
    with pytest.raises(UsageError, match=r"at least 0\.2 of 0\.2 MB came from memory") as error:
        observed_runs.observe_profile(counted([1e-5] * 10, 8192), tmp_path / "data")

    assert "drop_caches" in error.value.hint


@pytest.mark.parametrize(
    ("words", "why"),
    [(["window.npz", "--fast", "."], "--data FOLDER"), (["data", "--fast", "."], "no campaign in"),
     (["window.npz", "--data", "p", "--fast", "."], "has read no file below")],
)  # fmt: skip
def test_what_cannot_be_planned_is_refused_with_the_cure(words, why, profile, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UsageError) as error:
        stage.main(["plan", *words])

    assert why in f"{error.value.message} {error.value.hint}"


@pytest.mark.parametrize(("text", "size"), [("10GB", 10**10), ("1.5MB", 1_500_000), ("4096", 4096), ("2 kb", 2000)])
def test_a_capacity_is_read_in_powers_of_ten(text, size):
    assert stage._read_size(text) == size  # noqa: SLF001
