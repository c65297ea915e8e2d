"""``--json``, of every verb that tells: one JSON document on stdout, and all else on stderr."""

import json
import shutil
from pathlib import Path

import pytest

from analysis import __main__ as analysis
from campaign import doctor_node
from campaign.__main__ import run_guarded
from campaign.staging import observed_runs
from campaign.verbs import VERBS
from jobs.profiler import Profile

MEASURED = Path(__file__).parents[2] / "acceptance" / "stored" / "measured"
CELL = "micro-demo-local-t2-b8-p0-c4855c15f1"
PROFILE = MEASURED / "records" / CELL / "profile-1.npz"
LOG = MEASURED / "records" / "hepcnn-hep-local-b4-27ad75d6cc" / "timelog-1.timelog"

TELL = {
    "": ["--dry-run", "threads=1,2", "campaign_dir=new"],
    "clean": ["clean", "campaign_dir=a", "storage.root=images"],
    "compare": ["compare", "a", "b"],
    "doctor": ["doctor", "campaign_dir=new"],
    "measure": ["measure", "images", "--dry-run", "campaign_dir=new"],
    "reproduce": ["reproduce", "+size=smoke", "--dry-run", "campaign_dir=new"],
    "show": ["show", "c4855", "a"],
    "show FILE": ["show", str(LOG)],
    "stage plan": ["stage", "plan", "window.npz", "--data", "images", "--fast", "fast"],
    "feed": ["feed", "--dry-run", "storage=./fast", "accelerator=retinanet_b200", "campaign_dir=new"],
    "stall": ["stall", "--profile", "--dry-run", "--data", "images", "campaign_dir=new", "--", "cat", "x"],
    "status": ["status", "a"],
    "status --watch": ["status", "--watch", "a"],
    "testbed": ["testbed", "status", "--folder", "bed"],
    "verdicts": ["verdicts", "a"],
}
ACT = {"cancel", "help", "report", "tensorboard"}  # what they write, or say of what they did, is no answer


@pytest.fixture
def campaigns(tmp_path, monkeypatch):
    """Two campaigns, a and b, a folder of images, and the profile of a program that read them."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        shutil.copytree(MEASURED, name)
    Path("fast").mkdir()
    Path("images").mkdir()
    for number in range(10):
        Path(f"images/{number}").write_bytes(bytes(20_000))
    with Profile("counters", only=["images"]) as seen:
        for path in Path("images").iterdir():
            path.read_bytes()
    seen.save("window.npz")
    monkeypatch.setattr(observed_runs, "has_device", lambda _: False)
    monkeypatch.setattr(doctor_node, "has_tensorflow", lambda: False)  # else it is imported, for seconds


def test_each_verb_tells_or_acts():
    assert {verb.partition(" ")[0] for verb in TELL if verb} | ACT == {*VERBS}


@pytest.mark.parametrize("verb", TELL)
def test_a_verb_that_tells_prints_one_document_and_nothing_else(verb, campaigns, capfd):
    words = TELL[verb]
    before = words.index("--") if "--" in words else len(words)

    code = run_guarded([*words[:before], "--json", *words[before:]])

    said = capfd.readouterr()
    assert code in (0, 1, 2, 3)
    assert isinstance(json.loads(said.out), dict | list), said.err
    assert not Path("new").exists()


@pytest.mark.parametrize("verb", TELL)
def test_an_error_is_on_stderr_alone(verb, campaigns, capfd):
    words = TELL[verb]
    before = words.index("--") if "--" in words else len(words)

    code = run_guarded([*words[:before], "--json", "--no-such-flag", *words[before:]])

    said = capfd.readouterr()
    assert (code, said.out) == (2, "")
    assert said.err.startswith("error: unknown flag '--no-such-flag'\n\nhint: ")


@pytest.mark.parametrize("words", [["profile", PROFILE], ["timelog", LOG], ["timelog", "--budget", LOG]])
def test_a_reader_of_logs_does_so_too(words, capsys):
    assert analysis.main([*map(str, words), "--json"]) == 0

    assert json.loads(capsys.readouterr().out)
