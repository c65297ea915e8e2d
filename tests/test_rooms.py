"""The arrows between the rooms (design, section 2): who may import what."""

from __future__ import annotations

import ast
import graphlib
import itertools
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = {"analysis", "campaign", "conf", "jobs", "tests"}
MAY_IMPORT_OF_OURS = {"analysis": {"jobs"}, "campaign": {"jobs"}, "jobs": set()}
NEVER = {
    "analysis": {"tensorflow", "hydra", "submitit", "omegaconf"},
    "campaign": {"tensorflow", "matplotlib", "pandas"},
    "jobs": {"hydra", "omegaconf", "submitit", "pandas", "matplotlib"},
}

LEAVES = ("jobs.model", "jobs.judging", "jobs.events", "jobs.system", "jobs.profiler")
BELOW_THE_JUDGE = {
    "jobs.program_checks", "jobs.errors", "jobs.checks", "jobs.disturbances", "jobs.objects", "jobs.parser",
    "jobs.terminal",
}  # fmt: skip


def _nodes(node, *, in_functions=True, types=False):
    """Import statements below a node of the syntax tree; with `types` those of types alone, too."""
    for child in ast.iter_child_nodes(node):
        if not types and isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        if in_functions or not isinstance(child, ast.FunctionDef):
            yield from _nodes(child, in_functions=in_functions, types=types)


def _imports(node, *, in_functions=True, types=False):
    """Top-level packages that are imported below a node; with `types` those of types alone, too."""
    for child in _nodes(node, in_functions=in_functions, types=types):
        names = [name.name for name in child.names] if isinstance(child, ast.Import) else [child.module or ""]
        yield from (name.partition(".")[0] for name in names)


@cache
def _tree(source):
    return ast.parse(source.read_text())


def _sources(room):
    return sorted((ROOT / room).rglob("*.py"))


@pytest.mark.parametrize("room", MAY_IMPORT_OF_OURS)
def test_a_room_imports_only_what_it_may(room):
    everything = {_name(source): source for room in MAY_IMPORT_OF_OURS for source in _sources(room)}
    for source in _sources(room):
        ours = {name.partition(".")[0] for name in _needed(_tree(source), _name(source), everything)}
        assert ours | set(_imports(_tree(source), types=True)) & ROOMS <= MAY_IMPORT_OF_OURS[room] | {room}, source
        assert not set(_imports(_tree(source))) & NEVER[room], source


def test_the_analysis_takes_of_the_jobs_the_model_the_judge_and_what_these_need():
    modules = {_name(source): source for room in ("analysis", "jobs") for source in _sources(room)}
    reached, waiting = set(), [name for name in modules if name.startswith("analysis")]
    while waiting:
        reached.add(name := waiting.pop())
        waiting += {*_modules(_tree(modules[name]), modules)} - reached

    assert {name for name in reached if name.startswith("jobs") and not name.startswith(LEAVES)} <= BELOW_THE_JUDGE


def test_the_jobs_import_tensorflow_only_inside_functions():
    for source in _sources("jobs"):
        assert "tensorflow" not in set(_imports(_tree(source), in_functions=False)), source


def test_hydra_is_known_to_the_configuration_alone():
    found = {source for source in _sources("campaign") if {"hydra", "omegaconf"} & {*_imports(_tree(source))}}

    assert {source.parents[source.parent.name == "keys"] for source in found} == {ROOT / "campaign" / "config"}


def test_submitit_is_known_to_one_module_alone():
    found = [source for source in _sources("campaign") if "submitit" in _imports(_tree(source))]

    assert found == [ROOT / "campaign" / "cluster" / "submission.py"]


OF_LIBRARIES = {
    "campaign/cluster/submission.py": {"executor._make_submission_file_text"},
    "jobs/benchmarks/accelerator.py": {"context.context()._handle"},
    "analysis/figures/kit/save.py": {"Options._drop_tables_default"},
}
"""What libraries keep to themselves and a module uses all the same; it says why."""
OF_TUPLES = {"_asdict", "_fields", "_replace"}  # public names of named tuples
OF_PYTHON = {"os._exit", "member._value_"}


def test_what_a_library_keeps_to_itself_is_used_in_modules_that_say_why():
    for source in itertools.chain.from_iterable(map(_sources, NEVER)):
        place = str(source.relative_to(ROOT))
        assert {*_private(_tree(source))} <= OF_LIBRARIES.get(place, set()), place


def test_a_use_of_what_a_library_keeps_to_itself_would_be_found():
    tree = ast.parse(
        "from lib._x import y\nfrom lib import _z\nimport lib.a._b\nlib._c()\nself._own\nx._replace(y=1)\n"
    )

    assert {*_private(tree)} == {"lib._x.y", "lib._z", "lib.a._b", "lib._c"}


def _private(tree):
    """Names of other modules and classes that begin with an underscore, but for those that this module has, too."""
    own = {getattr(node, "name", None) for node in ast.walk(tree)}
    stored = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    own |= {node.attr for node in stored if ast.unparse(node.value) in ("self", "cls")}
    for node in ast.walk(tree):
        names = [f"{node.module}.{each.name}" for each in node.names] if isinstance(node, ast.ImportFrom) else []
        names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
        yield from (name for name in names if re.search(r"(^|\.)_(?!_)", name))
        if isinstance(node, ast.Attribute) and re.match(r"_(?!_)", node.attr) and node.attr not in own | OF_TUPLES:
            whole = ast.unparse(node)
            yield from {whole} - OF_PYTHON if not whole.startswith(("self.", "cls.", "super().")) else ()


@pytest.mark.parametrize("room", MAY_IMPORT_OF_OURS)
def test_no_module_needs_what_needs_it(room):
    """Types count, too, and what a function imports, and modules that are named by a word."""
    modules = {_name(source): source for source in _sources(room)}
    arrows = {name: set(_needed(_tree(source), name, modules)) - {name} for name, source in modules.items()}

    assert _circle(arrows) == []


def test_no_folder_of_the_jobs_needs_one_that_needs_it():
    """The model and the system below it are one leaf."""
    modules = {_name(source): source for source in _sources("jobs")}
    folders = {name: _folder(name, source) for name, source in modules.items()}
    arrows = {folder: set() for folder in folders.values()}
    for name, source in modules.items():
        arrows[folders[name]] |= {folders[each] for each in _needed(_tree(source), name, modules)} - {folders[name]}

    assert _circle(arrows) == []


def _folder(name, source):
    folder = name if source.name != "__init__.py" and name.count(".") == 1 else ".".join(name.split(".")[:2])
    return "jobs.system" if folder == "jobs.model" else folder


def _name(source):
    return ".".join(source.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _modules(node, known, *, types=False):
    """Modules of ours that are imported below a node, of those that are `known`."""
    for child in _nodes(node, types=types):
        if isinstance(child, ast.Import):
            yield from (name.name for name in child.names if name.name in known)
        elif child.module:
            whole = {f"{child.module}.{name.name}" for name in child.names}
            yield from whole & known.keys() or {child.module} & known.keys()


def _needed(tree, name, known):
    """Yield what a module of this name needs of `known`: imported anywhere in it or named by a word, and packages."""
    for module in {*_modules(tree, known, types=True), *_named(tree, known)}:
        parts = module.split(".")
        packages = {".".join(parts[:length]) for length in range(1, len(parts))} & known.keys()
        yield from {module, *(package for package in packages if not f"{name}.".startswith(f"{package}."))}


def _named(tree, known):
    """Modules that are named by ``module``, ``module:function``, ``f"package.{…}"`` or ``find_declared("package", …)``.

    Behind ``-m`` a name is that of another process.
    """
    processes = set()
    for node in ast.walk(tree):
        words = getattr(node, "elts", None) or getattr(node, "args", None) or []
        words = words if isinstance(words, list) else []
        processes |= {word for flag, word in itertools.pairwise(words) if getattr(flag, "value", None) == "-m"}
        is_word = isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in processes
        if is_word and "." in node.value:
            yield from {node.value.partition(":")[0]} & known.keys()
        elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            yield from _below(node.values[0].value, known)
        elif (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "find_declared"
            and isinstance(words[0], ast.Constant)
        ):
            yield from _below(f"{words[0].value}.", known)


def _below(package, known):
    """Return the modules of a package, which is named with the dot behind it; none where it is none."""
    is_package = package.endswith(".") and package[:-1] in known
    return {name for name in known if is_package and name.rpartition(".")[0] == package[:-1]}


def _circle(arrows):
    """Return the modules of a circle; none where all can be put in order."""
    sorter = graphlib.TopologicalSorter(arrows)
    try:
        sorter.prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


def test_a_forbidden_arrow_would_be_found():
    tree = ast.parse("import os\nif TYPE_CHECKING:\n    import hydra\ndef f():\n    from tensorflow.io import gfile\n")

    assert set(_imports(tree)) == {"os", "tensorflow"}
    assert set(_imports(tree, in_functions=False)) == {"os"}


def test_a_circle_would_be_found():
    trees = {"a.x": "from a import y", "a.y": "def f():\n    import a.z", "a.z": "from a.x import name"}

    found = {name: set(_needed(ast.parse(text), name, trees)) for name, text in trees.items()}

    assert set(_circle(found)) == {"a.x", "a.y", "a.z"}
    assert _circle(found | {"a.z": set()}) == []


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("if TYPE_CHECKING:\n    from b.y import Type", {"b", "b.y"}),
        ("class C:\n    def f(self):\n        from b import y", {"b", "b.y"}),
        ("VERBS = {'do': 'b.y:main'}", {"b", "b.y"}),
        ("importlib.import_module('b.y')", {"b", "b.y"}),
        ("importlib.import_module(f'b.{name}')", {"b", "b.y", "b.z"}),
        ("find_declared('b', 'OBSERVER')", {"b", "b.y", "b.z"}),
        ("subprocess.Popen([sys.executable, '-m', 'b.y'])", set()),
        ("python('-m', 'b.y', *words)", set()),
        ("import a.w", {"a.w"}),  # and not the package that both are in
        ("'b.y is a module'", set()),
    ],
)
def test_a_module_is_found_however_it_is_named(text, needs):
    known = dict.fromkeys(("a", "a.x", "a.w", "b", "b.y", "b.z"))

    assert set(_needed(ast.parse(text), "a.x", known)) == needs


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
