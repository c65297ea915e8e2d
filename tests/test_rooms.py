"""The arrows between the rooms (design, section 2): who may import what."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = {"analysis", "campaign", "conf", "jobs", "tests"}
MAY_IMPORT_OF_OURS = {"analysis": set(), "campaign": {"jobs"}, "jobs": set()}
NEVER = {
    "analysis": {"tensorflow", "hydra", "submitit", "omegaconf"},
    "campaign": {"tensorflow", "matplotlib", "pandas"},
    "jobs": {"hydra", "omegaconf", "submitit", "pandas", "matplotlib"},
}


def _imports(node):
    """Top-level packages that are imported below a node of the syntax tree; types alone do not count."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from (name.name.partition(".")[0] for name in child.names)
        elif isinstance(child, ast.ImportFrom):
            yield (child.module or "").partition(".")[0]
        yield from _imports(child)


def _at_import_time(tree):
    """The same tree without the bodies of functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body = []
    return tree


def _tree(source):
    return ast.parse(source.read_text())


def _sources(room):
    return sorted((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", MAY_IMPORT_OF_OURS)
def test_a_room_imports_only_what_it_may(room):
    for source in _sources(room):
        imported = set(_imports(_tree(source)))

        assert imported & ROOMS <= MAY_IMPORT_OF_OURS[room] | {room}, source
        assert not imported & NEVER[room], source


def test_the_jobs_import_tensorflow_only_inside_functions():
    for source in _sources("jobs"):
        assert "tensorflow" not in set(_imports(_at_import_time(_tree(source)))), source


def test_hydra_is_imported_in_one_package_alone():
    users = {
        source.parents[source.parent.name == "keys"]
        for source in _sources("campaign")
        if {"hydra", "omegaconf"} & {*_imports(_tree(source))}
    }

    assert users == {ROOT / "campaign" / "config"}


def test_a_forbidden_arrow_would_be_found():
    tree = ast.parse("import os\nif TYPE_CHECKING:\n    import hydra\ndef f():\n    from tensorflow.io import gfile\n")

    assert set(_imports(tree)) == {"os", "tensorflow"}
    assert set(_imports(_at_import_time(tree))) == {"os"}


@pytest.mark.parametrize(
    "words", [["--help"], ["status", "--help"], ["doctor", "--help"], ["--dry-run", "threads=1,2"]]
)
def test_nothing_slow_is_on_the_way_to(words, tmp_path):
    """No TensorFlow, pandas, matplotlib or submitit for a word of advice."""
    script = (
        "import runpy, sys\n"
        f"sys.argv = ['campaign', *{words!r}]\n"
        "try:\n    runpy.run_module('campaign', run_name='__main__')\nexcept SystemExit:\n    pass\n"
        "slow = {'tensorflow', 'pandas', 'matplotlib', 'submitit', 'keras'} & sys.modules.keys()\n"
        "print('slow:', sorted(slow), file=sys.stderr)\n"
    )

    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert "slow: []" in done.stderr
