"""Every wrong word ends in exit code 2, one sentence and a cure, and starts nothing."""

import pytest

from campaign.__main__ import run_guarded

_WRONG = {
    "thread=1": ("unknown key 'thread'", "did you mean 'threads'?"),
    "benchmark.preproces=true": ("unknown key 'benchmark.preproces'", "did you mean 'benchmark.preprocess'?"),
    "storage=lokal": ("storage: no choice 'lokal'", "did you mean 'local'?"),
    "+paper=fig44": ("paper: no choice 'fig44'", "did you mean 'fig4'?"),
    "paper=fig4": ("'paper' is not a group with a choice to replace", "+paper=…"),
    "statsu": ("'statsu' is neither a verb nor KEY=VALUE", "did you mean 'status'?"),
    "--bogus": ("unknown flag '--bogus'", "--dry-run"),
    "+size=smoke": ("+size=smoke changes nothing here", "+paper=fig4"),
    "+paper=fig4 +size=smoke iterations=2 dataset.files=128 dataset.classes=2": ("changes nothing here", "overrule it"),
    "threads=1,2 +size=paper": ("+size=paper changes nothing here", "dataset.files=…"),
    "+foo=1": ("unknown key 'foo'", "threads"),
    "foo.bar=1,2": ("unknown key 'foo'", "legal here"),
    "~threads": ("threads is missing", "threads=…"),
    "threads=abc": ("threads=abc is no whole number", "1 to 1,024"),
    "threads=[1": ("cannot read 'threads=[1'\n", "quote"),
    "campaign_dir=/tmp/ünï": (
        "cannot read 'campaign_dir=/tmp/ünï': the character ü needs quotes",
        """quote it: 'campaign_dir="/tmp/ünï"'""",
    ),
    "storage.root=a=b": ("the character = needs quotes", """quote it: 'storage.root="a=b"'"""),
    "threads=${nothing}": ("threads", "help keys"),
    "cache=lukewarm": ("cache=lukewarm is none of cold, warm, as_is", "did you mean 'warm'?"),
    "site.storages=5": ("site.storages=5 is no mapping", "legal: mapping"),
    "site=blackdog site.storages.hdd=5": (
        "site.storages.hdd=5 is no choice, and no mapping",
        "site.storages.hdd.root=…",
    ),
    "trace=5": ("trace=5 is no choice, and no mapping of its keys", "trace.interval_s=…"),
    "campaign_dir=null": ("campaign_dir=null is no text", "legal: text"),
    "cluster=slurm cluster.modules={a:1}": ("cluster.modules={'a': 1} is no list", "one,other"),
    "storage=/a/b,/a_b": ("/a/b and /a_b would both be storage a_b", "storage.name=…"),
    "runs=1": ("leaves no measured run", "runs=2"),
    "runs=4,5": ("runs has several values (4, 5)", "one value"),
    "dataset=folder": ("dataset.path has no value", "dataset.path=…"),
    "threads=interval(1,2)": ("names no single values", "threads=1,2"),
    "benchmark=1": ("Config group override must be a string or a list", "help keys"),
    "threads=glob(*)": ("the grid has no points", "glob"),
    "hydra/launcher=basic": ("'hydra/launcher=basic' is for Hydra itself", "--config-dir"),
    "+paper=glob(*)": ("is no recipe", "+paper=fig4,fig5"),
    "storage=site": ("storage.name has no value", "storage.name=…"),
    "cluster=local cluster.partition=gpu": ("unknown key 'cluster.partition'", "cluster=slurm cluster.partition=…"),
    "site.storages.scratch.root=/x": ("unknown key 'site.storages.scratch'", "+site.storages.scratch.root=…"),
    "threads=1,2 --cfg job": ("Ambiguous value for argument 'threads=1,2'", "one value"),
    "storage=[1,2]": ("storage=[1,2] is no choice of a group", "storage=one,other"),
    "dataset=${oc.select:a}": ("dataset=${oc.select:a} is no choice of a group", "dataset=one,other"),
    "cluster={a:1}": ("unknown key 'cluster.a'", "legal here: cluster.account"),
    "checks={}": ("checks={} changes nothing", "checks.…=…"),
    "redo=2": ("redo=2 is neither true nor false", "true or false"),
    "storage=local +storage='a=b'": ("storage is given twice", "storage=one,other"),
    "--package=foo": ("--package has no effect here", "--cfg job"),
    "hydra.run.dir=/x": ("'hydra.run.dir=/x' is for Hydra itself", "campaign_dir=…"),
    "hydra.foo=1": ("is for Hydra itself", "campaign_dir=…"),
}


@pytest.mark.parametrize("word", _WRONG)
def test_a_wrong_word_is_named_with_its_cure(word, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    message, hint = _WRONG[word]

    code = run_guarded(word.split())

    said = capsys.readouterr().err
    assert code == 2
    assert said.startswith("error: ")
    assert message in said
    assert hint in said.partition("\n\nhint: ")[2]
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


def test_a_missing_configuration_folder_is_named(capsys):
    assert run_guarded(["--config-dir", "/no/such/folder"]) == 2
    assert "/no/such/folder" in capsys.readouterr().err


def test_the_version_is_ours(capsys):
    assert run_guarded(["--version"]) == 0
    assert capsys.readouterr().out.startswith("tfio-campaign 0.")


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (["threads=1", "threads=2"], "threads is given more than once; the last one counts"),
        (["+paper=fig6", "threads=2", "dataset.files=128"], "dataset.files=128 changes the size of the recipe"),
        (["+paper=fig6", "threads=2", "dataset.files=128", "+size=smoke"], None),
        (["+paper=fig4", "threads=2", "seed=3"], None),
        (
            ["threads=2", "storage.root=x/${oc.env:TOKEN}"],
            "storage.root: work lists and records will contain the value of ${oc.env:…}",
        ),
        (["threads=2", r"storage.root=x/\${oc.env:TOKEN}"], None),
        (["threads=2", "cluster=slurm", "+cluster.extra.mail-user=${oc.env:TOKEN}"], None),
    ],
    ids=["twice", "size", "another size", "no size", "recorded", "literal", "Slurm's"],
)
def test_what_may_surprise_is_said(words, note, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKEN", "SECRET")

    assert run_guarded(["--dry-run", *words]) in (0, 3)

    said = capsys.readouterr()
    assert f"note: {note}" in said.err if note else "note: " not in said.err
    # Where data would be made is said in full: the path is recorded, too.
    assert "SECRET" not in "".join(line for line in said.err.splitlines() if not line.startswith("to make: "))
    assert "-t2-" in said.out
    assert "-t1-" not in said.out


@pytest.mark.parametrize(
    "words", [["status"], ["show", "x"], ["status", "--watch"], ["cancel"], ["report"]], ids=" ".join
)
def test_a_verb_where_there_is_no_campaign_says_so(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    assert run_guarded(words) == 2
    assert "no campaign in" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_starts_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    assert run_guarded(["--dry-run", "-m", "threads=1,16,16"]) == 0

    said = capsys.readouterr()
    (one, other), state = said.out.splitlines(), "  planned "
    assert one.index(state) == other.index(state)  # a column
    assert "2 to run, 12 runs" in said.err
    assert list(tmp_path.iterdir()) == []
