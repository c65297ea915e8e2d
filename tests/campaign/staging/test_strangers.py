"""A plan that somebody else has made leads nowhere else, and publishes nothing."""

import json
from pathlib import Path

import pytest

from campaign.__main__ import run_guarded
from campaign.errors import EnvironmentFaultError
from campaign.staging import staging_plan
from jobs.data.staged_copies import file_identity

GAIN = {"gain": 0.2, "low": 0.1, "high": 0.3}
COST = {"seek_s": 1e-3, "byte_s": 1e-9}


def plan_of(source, root, names, **chosen):
    """Make a plan that copies these names, by every rule but for those whose places are `chosen`."""
    listed = [[name, *(file_identity(Path(source, name)) or (1, 1))] for name in names]
    places = {rule: [*range(len(names))] for rule in staging_plan.RULES} | chosen
    rules = {rule: {"files": files, "bytes": 1, "gain": GAIN} for rule, files in places.items()}
    return {
        "schema": 1, "source": str(source), "root": str(root), "origin": "a cell", "runs": 5, "files": len(names),
        "bytes": 6, "capacity_bytes": 100, "calls_at_once": 1.0, "called": str(source), "read_bytes": 6.0,
        "mb_per_s": 9.0, "waiting": 1.0, "slow": COST, "fast": COST, "why_not": None, "left_out": 0,
        "from_memory": None, "listed": listed, "rules": rules,
    }  # fmt: skip


def _saved(home, found):
    home.mkdir(exist_ok=True)
    (home / staging_plan.NAME).write_text(json.dumps(found))
    return home


@pytest.fixture
def victim(tmp_path):
    """A home with a private key and a start file, which stay as they are, and a folder on a fast storage."""
    (tmp_path / "home" / ".ssh").mkdir(parents=True, mode=0o700)
    (tmp_path / "fast").mkdir()
    for name, mode in ((".bashrc", 0o644), (".ssh/id", 0o600)):
        (tmp_path / "home" / name).write_text(name)
        (tmp_path / "home" / name).chmod(mode)
    before = {path: file_identity(path) for path in (tmp_path / "home").rglob("*")}
    yield tmp_path / "home"
    assert {path: file_identity(path) for path in (tmp_path / "home").rglob("*")} == before


@pytest.fixture
def theirs(tmp_path):
    """A folder of somebody's, with a file that would take the place of another one."""
    source = tmp_path / "theirs" / "a" / "b" / "c"  # as deep as copies lie below a root
    for path in (source / "x", tmp_path / "theirs" / "home" / ".bashrc"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("theirs")
    return source


NAMES = (
    "../x", "a/../../x", "/etc/passwd", "", ".", "a//b", "x\0y", "\ud800", "d/" * 65 + "x", ".tfio-staged",
    ".tfio-lock", ".incoming/x", 7,
)  # fmt: skip
FILES = [[["x", 1]], [], *([[name, 1, 1]] for name in NAMES)]
AMOUNTS = ({"mb_per_s": 0}, {"read_bytes": 0.0}, {"files": 0}, {"bytes": 0})


@pytest.mark.parametrize(
    "changed",
    [
        *({"listed": listed} for listed in FILES), *AMOUNTS, {"root": "fast"}, {"root": "/x/../y"}, {"source": ""},
        {"source": "/x\0"}, {"rules": {}}, *({"rules": plan_of("/", "/", "", all=[at])["rules"]} for at in (-1, 1)),
    ],
)  # fmt: skip
def test_a_plan_that_leads_elsewhere_or_cannot_be_followed_is_damaged(changed, tmp_path):
    with pytest.raises(EnvironmentFaultError, match="is damaged"):
        staging_plan.load_plan(_saved(tmp_path, plan_of("/data", "/fast", ["x"]) | changed))


def test_the_folder_of_copies_of_another_user_is_refused(theirs, tmp_path, scratch, stranger, capsys):
    home = _saved(tmp_path / "staging", plan_of(theirs, scratch, ["x"]))
    copies = staging_plan.copies_folder(staging_plan.load_plan(home))
    stranger(lambda: copies.mkdir(parents=True))

    assert run_guarded(["stage", "apply", str(home), "--yes"]) == 3
    assert "belongs to nobody" in capsys.readouterr().err
    assert not [*copies.iterdir()]


def test_a_map_that_is_a_link_is_replaced_and_what_it_leads_to_stays(victim, theirs, tmp_path):
    home = _saved(tmp_path / "staging", plan_of(theirs, tmp_path / "fast", ["x"]))
    (home / "advised.json").symlink_to(victim / ".bashrc")

    assert run_guarded(["stage", "apply", str(home), "--yes"]) == 0
    assert not (home / "advised.json").is_symlink()
