"""`python -m campaign stage` as its user speaks it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from campaign.cli import stage
from campaign.errors import CampaignError, UsageError
from campaign.staging import apply_copies, observed_runs
from campaign.staging import staging_plan as plans
from jobs.data import staged_paths
from jobs.data.staged_copies import file_identity
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


@pytest.fixture
def planned(profile, tmp_path):
    """A plan by the profile whose rule advised takes three files, which are copied."""
    source, home = tmp_path / "data", tmp_path / "p"
    (tmp_path / "fast").mkdir()
    nothing = {"files": [], "bytes": 0, "gain": {"gain": 0.25, "low": 0.2, "high": 0.3}}
    rules = dict.fromkeys(plans.RULES, nothing) | {"advised": {**nothing, "files": [0, 1, 2], "bytes": 60_000}}
    listed = [[path.name, *file_identity(path)] for path in sorted(source.iterdir())]
    cost = {"seek_s": 1e-3, "byte_s": 1e-9}
    plans.save_plan(home, {
        "schema": 1, "source": str(source), "root": str(tmp_path / "fast"), "origin": str(profile), "runs": 1,
        "files": 10, "bytes": 200_000, "capacity_bytes": 60_000, "calls_at_once": 1.0, "called": str(source),
        "read_bytes": 200_000.0, "mb_per_s": 1.0, "waiting": 1.0, "slow": cost, "fast": cost, "why_not": None,
        "left_out": 0, "from_memory": None, "listed": listed, "rules": rules,
    })  # fmt: skip
    apply_copies.apply_plan(apply_copies.copy_request(home, ["advised"]), lambda *_: None)
    return home


def test_what_is_copied_is_said_and_asked_for_where_a_yes_to_costs_is_none(planned, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CAMPAIGN_YES", "1")
    monkeypatch.setattr("campaign.console._TERMINAL", "/nowhere")
    stage.main(["undo", str(planned)])

    with pytest.raises(CampaignError, match="nothing was copied"):
        stage.main(["apply", str(planned)])

    copies = plans.copies_folder(plans.load_plan(planned))
    said = capsys.readouterr().err.replace("\n", "")
    assert f"3 files, 0.1 MB, of {tmp_path}/data would be copied to {copies}" in said
    assert not copies.exists()
    assert stage.main(["apply", str(planned), "--yes"]) == 0
    assert len(list(copies.glob("*.bin"))) == 3


def _read_again(paths, file, wall_s, **changed):
    """Profile the reads of a program of the user's own, which took so long."""
    with Profile("counters") as seen:
        for path in paths:
            Path(path).read_bytes()
    window = seen.window
    ended_ns = window.started_ns + int(wall_s * 1e9)
    posix_window.write_window(file, replace(window, ended_ns=ended_ns, **changed))
    return str(file)


def test_a_check_of_cells_says_that_its_gains_are_not_those_of_the_campaigns_table(planned, monkeypatch, capsys):
    plans.save_plan(planned, plans.load_plan(planned) | {"origin": "a cell"})
    outcome = apply_copies.GainOutcome({"gain": 0.25, "low": 0.2, "high": 0.3}, 0.24, 0.2, 0.3)
    monkeypatch.setattr(stage, "open_existing", lambda path: (path, {"requests": None}))
    monkeypatch.setattr(stage, "Verdicts", lambda *_, **__: None)
    monkeypatch.setattr(apply_copies, "outcomes_of_cells", lambda *_: {"advised": outcome})

    assert stage.main(["check", str(planned)]) == 0

    shown = " ".join(capsys.readouterr().out.split())
    assert "the gains are of the MB/s in the profiled windows" in shown
    assert "table has the MB/s of the runs" in shown


@pytest.mark.parametrize(("wall_s", "code"), [(0.16, 0), (0.30, 1)])
def test_what_an_own_program_gained_is_held_against_its_plan(wall_s, code, planned, tmp_path, capsys):
    paths = staged_paths(sorted((tmp_path / "data").iterdir()), planned / "advised.json")
    after = _read_again(paths, tmp_path / "after.npz", wall_s, device_bytes=200_000)

    assert stage.main(["check", str(planned), "--profile", after]) == code

    _, line = capsys.readouterr().out.splitlines()
    gained = 0.2 / wall_s - 1
    assert line.split() == ["advised", "+25.0%", "+20.0%", "to", "+30.0%", f"{gained:+.1%}",
                            *f"{gained:+.1%} to {gained:+.1%}".split(), "FAILED" if code else "holds"]  # fmt: skip
    assert stage.main(["check", str(planned), "--profile", after, "--json"]) == code
    rules = json.loads(capsys.readouterr().out)["rules"]
    assert {rule: (each["measured"], each["holds"]) for rule, each in rules.items()} == {
        "advised": (pytest.approx(gained), not code)
    }


def test_a_profile_that_cannot_be_held_against_the_plan_says_why(planned, tmp_path, monkeypatch):
    monkeypatch.setattr(observed_runs, "has_device", lambda _: True)
    originals = sorted((tmp_path / "data").iterdir())
    copies = staged_paths(originals, planned / "advised.json")
    for paths, changed, why in (
        (originals, {}, "has read 0 copies"),
        (copies[:8], {}, r"has read 0\.2 MB of the plan's files"),
        (copies, {"device_bytes": 100_000}, r"at least 0\.1 of 0\.\d MB came from memory"),
    ):
        after = _read_again(paths, tmp_path / "after.npz", 0.1, **changed)
        with pytest.raises(UsageError, match=why):
            stage.main(["check", str(planned), "--profile", after])
    with pytest.raises(UsageError, match="not from cells of a campaign") as error:
        stage.main(["check", str(planned)])
    assert "--profile AFTER" in error.value.hint


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
