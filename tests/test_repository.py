"""What holds for the repository as a whole."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def _tracked():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return [ROOT / name for name in listed.split() if (ROOT / name).is_file()]


def test_the_lock_holds_names_and_versions_only():
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]

    assert len(lines) > 30
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line) for line in lines)


def test_every_dependency_is_locked():
    lock = {line.partition("==")[0] for line in (ROOT / "requirements.lock").read_text().splitlines()}
    extras = PROJECT["project"]["optional-dependencies"]
    asked = [*PROJECT["project"]["dependencies"], *(name for names in extras.values() for name in names)]

    assert {re.split(r"[\[<>=]", name)[0].lower() for name in asked} <= lock | {"tfio-campaign"}


def test_no_file_names_the_host_of_a_package_registry():
    hosts = re.compile(
        "|".join(["py" + r"pi\.org", "python" + r"hosted\.org", "npm" + r"js\.org", "deb" + r"ian\.org"])
    )
    tracked = _tracked()
    if not tracked:
        pytest.skip("not a git checkout")

    named = [
        path
        for path in tracked
        if path.suffix not in (".png", ".pdf", ".npz") and hosts.search(path.read_text(errors="replace"))
    ]

    assert named == []


def test_the_wheel_has_the_tool_and_its_settings():
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

    assert packages == ["analysis", "campaign", "conf", "jobs"]
