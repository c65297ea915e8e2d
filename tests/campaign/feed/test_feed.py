"""`python -m campaign feed`: the search on storages of known speed, its controls and words, and a real one."""

import json

import pytest

from campaign.cells import folder as folders
from campaign.cli import feed
from campaign.errors import CampaignError, EnvironmentFaultError, UsageError
from campaign.feed import probes
from campaign.feed.feed_answer import find_answer
from campaign.feed.probes import Target
from jobs.judging.fed_accelerators import Outcome, Setup, edge_of
from jobs.model.codes import ExitCode
from tests.campaign.command_line import TINY, CommandLine
from tests.campaign.work_lists import compose

QUIET = [word for word in TINY if word.startswith(("checks.", "storage.exclusive"))]
OWN = (
    "accelerator=own",
    "accelerator.sample_bytes=1000000",
    "accelerator.batch=2",
    "accelerator.step_s=0.1",
)  # 20 MB/s


@pytest.fixture
def storage(tmp_path, monkeypatch):
    """A function: a target on a storage of a rate in MB/s, on a client that copies and reads so many MB/s."""

    def storage(rate, *, copies=1e9, reads=1e9, late=lambda _: False, odd=()):
        point = compose("benchmark=feed", "dataset=samples", "storage=local", *OWN)
        point["storage"] = {**point["storage"], "root": str(tmp_path)}
        target = Target(point, [], baseline_mb_per_s=rate)
        target.size_data(64)

        def probe(setup, runs=1):
            step_s = setup.step_s or 0.1
            gives = {"cold": rate, "memory": copies, "warm": reads}[setup.kind]
            share = 100 * min(1.0, gives * step_s / (setup.accelerators * 2))
            share = 99.0 if (setup.accelerators, setup.kind) in odd else share
            run = dict.fromkeys(("au_percent", "au_mean_percent", "au_dlio_percent"), share)
            run |= {
                "read_mb_per_s": gives,
                "late_share": 0.0,
                "cpu_wait_percent": 0.0,
                "load_s": 0.1,
                "sync_s": 0.1,
                "wall_s": 1.0,
            }
            target.plans[setup] = target.plan(setup, runs)
            target.outcomes[setup] = Outcome(() if late(setup) else [run] * runs, late(setup))
            return target.outcomes[setup]

        monkeypatch.setattr(target, "probe", probe)
        return target

    return storage


@pytest.mark.parametrize(
    "client",
    [
        {},
        {"odd": {(12, "cold")}},
        {"copies": 90},
        {"reads": 92},
        {"copies": 10},
        {"late": lambda setup: setup.accelerators > 3},
        {"late": lambda setup: setup.kind == "cold" and setup.accelerators > 3},
    ],
)
@pytest.mark.parametrize("rate", [6, 25, 110, 10**5])
def test_the_report_reads_the_same_edge_from_what_was_recorded(storage, rate, client):
    answer = find_answer(target := storage(rate, **client), 2, 64)

    assert edge_of(target.outcomes, target.minimum) == answer.edge


@pytest.mark.parametrize(
    ("client", "at_most"),
    [
        ({"copies": 90}, 4),
        ({"reads": 92}, 5),
        ({"late": lambda setup: setup.accelerators > 3}, 3),
        ({"copies": 10}, 0),
        ({"late": lambda setup: setup.kind == "cold" and setup.accelerators > 3}, 3),
    ],
    ids=["copies too slowly", "reads too slowly", "ends steps late", "not even one", "ends steps late where it reads"],
)
def test_a_client_that_is_too_slow_is_the_answer_and_no_number_of_the_storage_is(storage, client, at_most):
    answer = find_answer(storage(110, **client), 5, 1024)

    assert f"this client can emulate at most {at_most} own" in answer.line
    assert (answer.as_json()["feeds"], answer.as_json()["client_at_most"]) == (None, at_most)
    assert answer.edge.fed <= at_most


def test_a_client_that_is_just_able_is_not_the_answer(storage):
    assert find_answer(storage(110, copies=7 * 20 * 0.981, reads=7 * 20 * 0.91), 5, 1024).edge.fed == 6


def test_below_one_the_shortest_step_that_is_fed_gives_the_share(storage):
    answer = find_answer(storage(6), 5, 1024)

    assert answer.share == pytest.approx(6 / 20 / 0.9, rel=0.06)
    assert "feeds 0.3" in answer.line
    assert "of one own: with steps of 0.3" in answer.line


def test_all_that_the_data_suffice_for_may_be_fed(storage):
    few, all_of_them = find_answer(storage(10**5), 5, 8), find_answer(storage(10**5), 5, 1024)

    assert (few.edge.fed, few.edge.not_fed) == (8, None)
    assert few.line.endswith("feeds 8 own at least (worst rank 100.0 %); --most allows no more")
    assert all_of_them.edge.fed == all_of_them.target.most_accelerators()
    assert all_of_them.line.endswith("at least (worst rank 100.0 %); the data suffice for no more")


def test_the_data_take_no_more_than_the_free_space(storage, monkeypatch):
    target = storage(110)
    monkeypatch.setattr(probes.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 100_000_000}))
    target.size_data(10)

    assert target.data_bytes == 79_000_000, "with the last block of each file"
    assert target.most_accelerators() == 3, "of ten steps with two samples"
    target.size_data(10, sharing=2)
    assert target.data_bytes == 39_000_000


@pytest.mark.parametrize(
    ("valid", "late", "is_late"), [(0, 1, False), (0, 2, True), (1, 2, True), (3, 2, False), (5, 0, False)]
)
def test_a_client_is_late_if_half_of_its_runs_were(storage, monkeypatch, valid, late, is_late):
    target = storage(110)
    plan = target.plan(Setup(1), 1)
    runs = [{"role": "measured", "status": "valid", "au_percent": 99.0}] * valid
    runs += [{"role": "measured", "status": "invalid", "cause": "on_time", "reason": "on_time: late"}] * late
    runs += [{"role": "measured", "status": "invalid", "cause": "quiet", "reason": "quiet: others"}] * 9
    record = {"runs": runs, "looser_checks": ["checks.other_cpu_max=9 (the site's: 0.5)"]}
    monkeypatch.setattr(probes, "require_unchanged", lambda *_, **__: None)
    monkeypatch.setattr(type(plan.verdicts), "read", lambda *_: (record, None))
    outcome = probes.read_outcome(plan, plan.entries[0])

    assert outcome.looser_checks == ["checks.other_cpu_max=9 (the site's: 0.5)"]
    assert (outcome.late, outcome.worst) == (is_late, 0.0 if is_late or not valid else 99.0)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("accelerator=unet3d_h100",), "no storage is named"),
        (("storage=/tmp",), "no accelerator is named"),
        (("storage=/tmp", "accelerator=unet3d_h100", "runs=3"), "`feed` itself sets that"),
        (("storage=/tmp", "accelerator=cpu"), "has no definition of what it reads"),
        (("storage=/tmp", "accelerator=dlrm_b200"), "less than 0.001 s"),
        (("storage=/tmp", "accelerator=unet3d_h100", "six"), "neither an option nor KEY=VALUE"),
        (("storage=/tmp", "accelerator=unet3d_h100", "--runs", "0"), "0 is not a whole number from 1 to 100"),
        (("storage=/tmp", "accelerator=unet3d_h100", "--most", "5000"), "5000 is not a whole number from 1 to 4,096"),
        (("storage=/nonexistent", "accelerator=unet3d_h100"), "there is no folder /nonexistent"),
        (("storage=/proc", "accelerator=unet3d_h100"), "/proc is not writable for you, or has no space"),
    ],
)
def test_what_it_cannot_do_is_refused_before_anything_is_begun(words, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((CampaignError, UsageError), match=why):
        feed.main([*words, "--dry-run"])
    assert not any(tmp_path.iterdir())


def test_a_second_search_in_a_folder_is_refused_while_the_first_one_is_between_two_probes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder, _ = folders.open_or_create(tmp_path / "feed")

    with folders.lock_folder(folder, "feed"), pytest.raises(EnvironmentFaultError, match="another feed is running"):
        feed.main([f"storage={tmp_path}", *OWN])
    assert not any(folder.records.iterdir())


def test_the_words_of_a_probe_name_one_cell_of_a_sweep(storage):
    target = storage(110)
    words = ("accelerator=unet3d_h100,own", "storage=ssd,local", "threads=2,4", "iterations=3,7", "runs=2")

    assert [feed.override_of_point(target.point | {"threads": 2}, word) for word in words] == [
        "accelerator=own", "storage=local", "threads=2", "iterations=3,7", "runs=2"
    ]  # fmt: skip


def test_a_probe_that_is_stopped_stops_the_search(storage, monkeypatch):
    target = storage(110)
    monkeypatch.setattr(probes.run, "run_plan", lambda *_, **__: ExitCode.INTERRUPTED)
    with pytest.raises(KeyboardInterrupt):
        Target.probe(target, Setup(1))


@pytest.mark.long
def test_a_search_on_a_disk_ends_and_the_same_command_reads_what_is_recorded(tmp_path):
    command = CommandLine(tmp_path, timeout_s=500)
    words = ("feed", f"storage={tmp_path}", *OWN, "accelerator.sample_bytes=20000", "iterations=12", "--most", "2",
             "--runs", "2", "benchmark.file_mb=20", "--yes", "--json", *QUIET)  # fmt: skip
    first = command(*words)
    assert first.returncode == 0, first.stderr
    assert first.stderr.count("cluster=auto") == 1
    second = command(*words)

    assert json.loads(second.stdout) == json.loads(first.stdout)
    assert "running" not in second.stderr
    assert (tmp_path / "feed" / "report.html").exists()
    cell = json.loads(first.stdout)[0]["probes"][0]["cell"]
    assert "on_time" in command("show", cell, "feed").stdout
