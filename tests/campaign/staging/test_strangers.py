"""A plan that somebody else has made leads nowhere else, and publishes nothing."""

import json
import os
import shutil
from pathlib import Path

import pytest

from campaign.__main__ import guarded
from campaign.staging import plan
from jobs.burst_buffer import transfer
from jobs.data.staging import FOLDER, identity

GAIN = {"gain": 0.2, "low": 0.1, "high": 0.3}
COST = {"seek_s": 1e-3, "byte_s": 1e-9}


def plan_of(source, root, names):
    """Make a plan that copies these names, by every rule."""
    listed = [[name, *(identity(Path(source, name)) or (1, 1))] for name in names]
    rule = {"files": list(range(len(names))), "bytes": 1, "gain": GAIN}
    return {
        "schema": 1, "source": str(source), "root": str(root), "origin": "a cell", "runs": 5, "files": len(names),
        "bytes": 6, "capacity_bytes": 100, "calls_at_once": 1.0, "called": str(source), "read_bytes": 6.0,
        "mb_per_s": 9.0, "waiting": 1.0, "slow": COST, "fast": COST, "why_not": None, "left_out": 0,
        "from_memory": None, "listed": listed, "rules": dict.fromkeys(plan.RULES, rule),
    }  # fmt: skip


def _saved(home, found):
    home.mkdir(exist_ok=True)
    (home / plan.NAME).write_text(json.dumps(found))
    return home


@pytest.fixture
def victim(tmp_path):
    """A home with a private key and a start file, which stay as they are, and a folder on a fast storage."""
    (tmp_path / "home" / ".ssh").mkdir(parents=True, mode=0o700)
    (tmp_path / "fast").mkdir()
    for name, mode in ((".bashrc", 0o644), (".ssh/id", 0o600)):
        (tmp_path / "home" / name).write_text(name)
        (tmp_path / "home" / name).chmod(mode)
    before = {path: identity(path) for path in (tmp_path / "home").rglob("*")}
    yield tmp_path / "home"
    assert {path: identity(path) for path in (tmp_path / "home").rglob("*")} == before


@pytest.fixture
def theirs(tmp_path):
    """A folder of somebody's, with a file that would take the place of another one."""
    source = tmp_path / "theirs" / "a" / "b" / "c"  # as deep as copies lie below a root
    for path in (source / "x", tmp_path / "theirs" / "home" / ".bashrc"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("theirs")
    return source


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "a/../../x",
        "/etc/passwd",
        "",
        ".",
        "a//b",
        "x\0y",
        "\ud800",
        "d/" * 65 + "x",
        ".tfio-staged",
        ".tfio-lock",
        ".incoming/x",
        7,
    ],
)
@pytest.mark.parametrize("verb", ["apply", "undo"])
def test_a_name_that_leads_elsewhere_is_refused_when_the_plan_is_read(name, verb, theirs, tmp_path, capsys):
    (tmp_path / "fast").mkdir()
    found = plan_of(theirs, tmp_path / "fast", [])
    home = _saved(tmp_path / "staging", found | {"listed": [[name, 1, 1]]})

    assert guarded(["stage", verb, str(home), *(["--yes"] if verb == "apply" else [])]) == 3

    assert "is no file" in capsys.readouterr().err
    assert not [*(tmp_path / "fast").iterdir()]


def test_a_file_of_the_home_is_not_replaced(victim, theirs, tmp_path):
    assert victim == tmp_path / "home"
    home = _saved(tmp_path / "staging", plan_of(theirs, tmp_path / "fast", ["../../../home/.bashrc"]))

    assert guarded(["stage", "apply", str(home), "--rule", "all", "--yes"]) == 3


@pytest.mark.parametrize(
    "changed",
    [{"root": "fast"}, {"root": "/x/../y"}, {"source": ""}, {"source": "/x\0"}, {"rules": {}},
     {"listed": [["x", 1]]}, {"listed": []}, {"listed": [["x", 1, "x"]]},
     {"mb_per_s": 0}, {"mb_per_s": -9.0}, {"read_bytes": 0.0}, {"files": 0}, {"bytes": -1}],
)  # fmt: skip
def test_a_plan_that_cannot_be_followed_is_damaged(changed, theirs, tmp_path, capsys):
    (tmp_path / "fast").mkdir()
    home = _saved(tmp_path / "staging", plan_of(theirs, tmp_path / "fast", ["x"]) | changed)

    assert guarded(["stage", "apply", str(home), "--yes"]) == 3

    assert "is damaged" in capsys.readouterr().err


@pytest.fixture
def given_by(scratch, stranger):
    """A function: let another user save a plan; returns its folder."""

    def save(found):
        stranger(_saved, scratch / "staging", found)
        return scratch / "staging"

    return save


@pytest.mark.parametrize("verb", ["apply", "undo"])
def test_the_plan_of_another_user_is_refused(verb, given_by, theirs, tmp_path, capsys):
    (tmp_path / "fast").mkdir()
    found = plan_of(theirs, tmp_path / "fast", ["x"])
    given = given_by(found)
    mine = _saved(tmp_path / "mine", found)
    os.chown(mine / plan.NAME, 65534, 65534)  # as `cp -a` by root leaves it
    open_one = _saved(tmp_path / "open", found)
    open_one.chmod(0o777)
    sure = ["--yes"] if verb == "apply" else []

    for home, why in ((given, "is nobody's"), (mine, "the plan is nobody's"), (open_one, "other users")):
        assert guarded(["stage", verb, str(home), *sure]) == 3
        assert why in capsys.readouterr().err
    assert not [*(tmp_path / "fast").iterdir()]


def test_a_copy_is_private_until_it_is_whole_and_then_as_its_original(victim, tmp_path, monkeypatch):
    modes, copied = [], transfer._copy_range  # noqa: SLF001

    def watched(source, target, *more):
        modes.append(os.fstat(target).st_mode & 0o777)
        return copied(source, target, *more)

    monkeypatch.setattr(transfer, "_copy_range", watched)
    names = {".bashrc": 0o644, ".ssh/id": 0o600, "read": 0o440, "open": 0o666}
    source = tmp_path / "data"
    shutil.copytree(victim, source)
    for name, mode in names.items():
        (source / name).write_text(name)
        (source / name).chmod(mode)
    home = _saved(tmp_path / "staging", plan_of(source, tmp_path / "fast", [*names]))

    assert guarded(["stage", "apply", str(home), "--yes"]) == 0

    copies = plan.copies_of(plan.load(home))
    assert set(modes) == {0o600}
    assert {name: (copies / name).stat().st_mode & 0o777 for name in names} == names | {"open": 0o644}
    assert (tmp_path / "fast" / FOLDER).stat().st_mode & 0o777 == 0o755
    assert copies.stat().st_mode & 0o777 == 0o700  # its original's folder may be private


def test_the_folder_of_copies_of_another_user_is_refused(theirs, tmp_path, scratch, stranger, capsys):
    home = _saved(tmp_path / "staging", plan_of(theirs, scratch, ["x"]))
    copies = plan.copies_of(plan.load(home))
    stranger(lambda: copies.mkdir(parents=True))

    assert guarded(["stage", "apply", str(home), "--yes"]) == 3
    assert "is nobody's" in capsys.readouterr().err
    assert not [*copies.iterdir()]


def test_undoing_makes_no_folder(theirs, tmp_path):
    (tmp_path / "fast").mkdir()
    home = _saved(tmp_path / "staging", plan_of(theirs, tmp_path / "fast", ["x"]))

    assert guarded(["stage", "undo", str(home)]) == 0
    assert not [*(tmp_path / "fast").iterdir()]


def test_a_map_that_is_a_link_is_replaced_and_what_it_leads_to_stays(victim, theirs, tmp_path):
    home = _saved(tmp_path / "staging", plan_of(theirs, tmp_path / "fast", ["x"]))
    (home / "advised.json").symlink_to(victim / ".bashrc")

    assert guarded(["stage", "apply", str(home), "--yes"]) == 0
    assert not (home / "advised.json").is_symlink()
