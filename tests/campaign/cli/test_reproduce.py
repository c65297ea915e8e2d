"""What `reproduce` plans; and the whole paper on the twin of its testbed, shortened: what the records hold."""

import csv
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from campaign import console
from campaign.cli import analyse, reproduce
from campaign.cli import run as main_verb
from campaign.config import recipes
from campaign.config.collect import collect_points, make_cells
from campaign.config.command_line import parse_command_line
from campaign.errors import UsageError
from campaign.testbed import apply
from tests.campaign.command_line import CommandLine
from tests.campaign.testbed.testbeds import required
from tests.judged import records_of

WORDS = (
    "+size=smoke", "site=twin", "storage=ssd", "threads=1,2", "batch_size=4,8", "iterations=20", "dataset.files=160",
    "runs=2", "min_valid_runs=1", "cluster=local", "accelerator.step_s=0.02", "benchmark.width=0.125",
    # Two cores serve training and storages, and short runs outpace the bounds of the kernel.
    "checks.other_cpu_max=1000", "checks.other_device_max=1", "checks.peak_max=1000",
    "checks.time_error_max=0.1", "checks.stolen_max=1000", "checks.delayed_max=1",
)  # fmt: skip


MICRO = recipes.Recipe("fig4", "micro", None, ())


def test_what_emulated_nodes_read_is_no_storage_of_the_paper():
    assert reproduce._site_storages(["site=twin"]) == ["hdd", "ssd", "optane", "lustre"]  # noqa: SLF001


@pytest.fixture(scope="module")
def two_storages(tmp_path_factory):
    """A site with two of the paper's storages; returns the words that name it."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "conf" / "site").mkdir(parents=True)
    storages = "".join(f"  {name}: {{root: {folder}/{name}}}\n" for name in ("hdd", "ssd"))
    text = f"defaults: [none, _self_]\nname: mine\nstorages:\n{storages}  gone: {{root: null}}\n"
    (folder / "conf" / "site" / "mine.yaml").write_text(text)
    return "--config-dir", str(folder / "conf"), "site=mine", "+size=smoke", "cluster=local"


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Call `reproduce` and return the plan that would have been carried out, and the words it was asked for with."""

    def ask(*words):
        seen = []
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path_factory.mktemp("asked"))
            patch.setattr(main_verb, "run_plan", lambda planned, argv, *_, **__: seen.append((planned, argv)) or 0)
            assert reproduce.main(words) == 0
        return seen.pop()

    return ask


@pytest.fixture(scope="module")
def some(ask, two_storages):
    """The plan of three recipes."""
    three = [recipe for recipe in recipes.list_recipes() if recipe.name in ("table1", "fig4", "fig8")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipes, "list_recipes", lambda _: three)
        planned, argv = ask(*two_storages)
    assert argv == ["reproduce", *two_storages]
    return planned


@pytest.mark.parametrize(
    ("chosen", "named", "line"),
    [
        ([], "optane", "recipe fig9: storage=hdd in place of storage=optane, which the site does not have"),
        (["storage=hdd"], "ssd", "recipe fig9: storage=hdd in place of storage=ssd, as you chose"),
    ],
)
def test_it_says_which_storage_it_reads_in_place_of_that_of_a_recipe(two_storages, monkeypatch, chosen, named, line):
    said = []
    monkeypatch.setattr(recipes, "list_recipes", lambda _: [recipes.Recipe("fig9", "alexnet", named, ())])
    monkeypatch.setattr(reproduce, "_compose_recipe", lambda *_: [])
    monkeypatch.setattr(console, "say", said.append)

    reproduce._compose_recipes(parse_command_line([*two_storages, *chosen]), ["chien2018"])  # noqa: SLF001

    assert said == [line]


@pytest.mark.long
def test_reproduce_is_every_recipe_on_every_storage_as_one_campaign(ask, two_storages):
    planned, _ = ask(*two_storages)
    cells = {entry.cell.id: entry.cell for entry in planned.entries}
    flags, words = two_storages[:2], two_storages[2:]
    for recipe in ("fig4", "fig5", "fig6", "fig7", "fig8"):
        alone = collect_points(["-m", *flags, *words, f"+paper={recipe}", "storage=hdd,ssd"])
        assert {cell.id for cell in make_cells(alone)[0]} <= cells.keys()
    targets = {cell.settings["checkpoint"]["name"] for cell in cells.values() if cell.benchmark == "alexnet"}
    assert targets == {"none", "hdd", "ssd"}


def test_each_cell_has_the_baseline_of_its_own_file_size_and_readers(some):
    settings = [entry.cell.settings for entry in some.entries]

    small = [each for each in settings if each["benchmark"].get("access") == "random_read"]
    kinds = [(each["storage"]["name"], each["dataset"], each["threads"]) for each in small]
    cells = [each for each in settings if each["benchmark"]["name"] != "baseline"]
    assert len(cells) > len(kinds)
    for each in cells:
        assert kinds.count((each["storage"]["name"], each["dataset"], each["threads"])) == 1
    assert {each["benchmark"]["access"] for each in settings if each not in cells} == {"read", "write", "random_read"}


def test_the_price_is_said_and_nothing_starts_without_a_yes(some, two_storages, monkeypatch, tmp_path):
    said, questions, started = [], [], []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reproduce, "_compose_recipes", lambda *_: [])
    monkeypatch.setattr(main_verb, "plan_points", lambda *_, **__: some)
    monkeypatch.setattr(main_verb, "run_plan", lambda *words, **_: started.append(words) or 0)
    monkeypatch.setattr(console, "say", said.append)
    monkeypatch.setattr(console, "ask_for_yes", lambda question: bool(questions.append(question)))

    codes = reproduce.main(two_storages), reproduce.main([*two_storages, "--yes"])

    assert codes == (1, 0)
    assert (len(questions), len(started)) == (1, 1)
    assert any("runs with warm-ups; how long they take is not known" in line for line in said)


def test_json_has_the_state_of_each_cell_and_the_verdicts_on_the_claims(some, two_storages, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reproduce, "_compose_recipes", lambda *_: [])
    monkeypatch.setattr(main_verb, "plan_points", lambda *_, **__: some)
    monkeypatch.setattr(main_verb, "run_plan", lambda planned, *_, as_json: told.append(as_json(planned)) or 0)
    monkeypatch.setattr(analyse, "read_verdicts", lambda folder: [{"claim": str(folder)}])
    told = []

    reproduce.main([*two_storages, "--yes", "--json"])

    assert told[0]["claims"] == [{"claim": str(some.folder.root)}]
    assert told[0]["cells"].keys() == {entry.cell.id for entry in some.entries}
    assert told[0]["counts"] == {"planned": len(told[0]["cells"])}


@pytest.mark.parametrize(
    ("words", "why", "cure"),
    [
        (["+paper=fig4"], "every recipe", "+paper=fig4,fig5"),
        (["++paper=fig4"], "every recipe", "+paper=fig4,fig5"),
        (["paper=fig4", "paper=all", "paper=fig9"], "there are no recipes for paper=fig4", "paper=chien2018|"),
        (["benchmark.widht=0.5"], "no recipe has a setting 'benchmark.widht", "help keys"),
        (["benchmark=micro"], "no recipe has a setting", "help keys"),
        *(([*shows, "+size=smoke"], "no single configuration for " + shows[0][:6], "--dry-run lists its cells")
          for shows in (["--cfg", "job"], ["--info=defaults"], ["--hydra-help"])),
    ],
)  # fmt: skip
def test_what_reproduce_cannot_do_is_refused_with_the_cure(words, why, cure, two_storages, capsys):
    with pytest.raises(UsageError, match=re.escape(why)) as caught:
        reproduce.main([*words, *two_storages[: 3 * ("benchmark" in words[0])]])

    assert cure in caught.value.hint
    assert capsys.readouterr().out == ""


def test_cells_that_read_copies_wait_until_the_copies_are_made(tmp_path, point, capfd):
    points = [{**point, "campaign_dir": str(tmp_path), "staging": rule} for rule in ("none", "smallest", "advised")]
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging" / "advised.json").write_text("{}")

    kept = reproduce._drop_missing_copies(points)  # noqa: SLF001

    assert [each["staging"] for each in kept] == ["none", "advised"]
    assert "left out 1 cell of staging=smallest" in capfd.readouterr().err


def test_an_error_names_the_recipe_that_it_is_of(two_storages, monkeypatch):
    monkeypatch.setattr(recipes, "list_recipes", lambda _: [MICRO])

    with pytest.raises(UsageError, match=r"^fig4: "):
        reproduce.main([*two_storages, "iterations=200", "--dry-run"])


@pytest.fixture(scope="module")
def twin(tmp_path_factory):
    """The four storages of the paper, 2 GB each."""
    required()
    folder = tmp_path_factory.mktemp("twin") / "testbed"
    sizes = (f"{name}.size_gb=2" for name in ("hdd", "ssd", "optane", "lustre"))
    command = [sys.executable, "-m", "campaign", "testbed", "up", "--folder", str(folder), *sizes]
    try:
        subprocess.run(command, check=True, timeout=120)
        yield folder
    finally:
        apply.take_down(folder)


@pytest.fixture(scope="module")
def reproduced(twin, tmp_path_factory):
    """What the command said, the folder it made, and a way to give more commands there."""
    command = CommandLine(tmp_path_factory.mktemp("reproduced"), timeout_s=580)
    return command("reproduce", *WORDS, CAMPAIGN_TESTBED=str(twin)), command.cwd / "results", command


@pytest.fixture(scope="module")
def records(reproduced):
    return records_of(reproduced[1])


def _is(record, benchmark):
    return record["cell"]["benchmark"] == benchmark


@pytest.mark.long
def test_every_recipe_is_done_and_every_run_is_proved(reproduced, records):
    said = reproduced[0]

    assert said.returncode == 0, said.stderr
    assert {record["cell"]["benchmark"] for record in records} == {"baseline", "micro", "alexnet"}
    assert {record["status"] for record in records} == {"done"}
    runs = [run for record in records for run in record["runs"]]
    assert {run["role"] for run in runs} == {"warmup", "measured"}
    for run in runs:
        proofs = {check["rule"]: check["passed"] for check in run["checks"]}
        assert proofs["complete"] is proofs["time_adds_up"] is proofs["quiet"] is True
        assert {proofs.get(rule, True) for rule in ("reached_device", "cold", "device_bytes")} == {True}


@pytest.mark.long
def test_baselines_come_first_and_judge_the_others(records):
    first = max(record["runs"][0]["started_utc"] for record in records if _is(record, "baseline"))
    others = [record for record in records if not _is(record, "baseline")]

    accesses = {record["cell"]["settings"]["benchmark"].get("access") for record in records} - {None}
    assert accesses == {"write", "read", "random_read"}
    assert all(record["runs"][0]["started_utc"] > first for record in others)
    for run in (run for record in others for run in record["runs"]):
        assert "below_peak" in {check["rule"] for check in run["checks"]}


@pytest.mark.long
def test_snapshots_went_to_every_target_of_the_paper(records):
    saved = {}
    for record in records:
        if "checkpoint" in record["cell"]["settings"] and _is(record, "alexnet"):
            saved.setdefault(record["cell"]["settings"]["checkpoint"]["name"], []).append(record)

    assert saved.keys() == {"none", "hdd", "ssd", "optane", "burst_buffer"}
    for name in saved.keys() - {"none"}:
        lines = [line for record in saved[name] for run in record["runs"] for line in run["checkpoints"]]
        assert lines
        assert all(line["verified"] and line["durable_slow_s"] for line in lines)


@pytest.mark.long
def test_all_that_is_shown_says_emulated(reproduced, records):
    said, folder, _ = reproduced

    assert all("storage" in record["provenance"]["emulated"] for record in records)
    assert re.search(r"\bssd(, [\w ]+)* emulated by a model", said.stdout)
    assert "ssd is a flash model, 280.55 MB/s read" in (folder / "report.html").read_text()
    figures = {path.stem.partition("-")[0] for path in (folder / "figures").glob("*.pdf")}
    assert figures == {"table1", "fig4", "fig5", "fig6", "fig7", "fig8", "fig9", "fig10", "checkpoints"}
    with (folder / "tables" / "medians.csv").open() as file:
        shares = [row["percent_of_baseline"] for row in csv.DictReader(file) if row["benchmark"] != "baseline"]
    assert shares
    assert all(float(share) > 0 for share in shares)


@pytest.mark.long
def test_every_claim_has_a_verdict_that_a_build_server_can_read(reproduced):
    _, folder, command = reproduced

    done = command("verdicts", "--junit", "verdicts.xml")

    assert done.returncode in (0, 1), done.stderr
    cases = list(ET.parse(command.cwd / "verdicts.xml").iter("testcase"))  # noqa: S314 - written a moment ago
    with (folder / "tables" / "verdicts.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if not row["pair"]]
    assert len(cases) == len(rows) >= 37
    assert {row["verdict"] for row in rows} >= {"not comparable"}


@pytest.mark.long
def test_the_same_command_runs_nothing(reproduced, twin):
    _, folder, command = reproduced
    before = {path: path.read_bytes() for path in folder.glob("records/*/record.json")}

    again = command("reproduce", *WORDS, CAMPAIGN_TESTBED=str(twin))

    assert again.returncode == 0, again.stderr
    assert "nothing to run" in again.stderr
    assert {path: path.read_bytes() for path in folder.glob("records/*/record.json")} == before
