"""The fast composition equals Hydra's own."""

import copy
import itertools
from contextlib import nullcontext
from pathlib import Path

import hydra
import pytest
from hydra.errors import OverrideParseException
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from campaign.config import composer
from campaign.config.collect import collect_points, make_cells
from campaign.config.composer import Composer, explain_errors
from campaign.config.tree import convert_point
from campaign.errors import EnvironmentFaultError, UsageError
from jobs.model.settings import flat_items
from tests.campaign.work_lists import compose as composed

RECIPES = Path(__file__).parents[3] / "conf" / "paper"
_VALUES = {
    "threads": ["1", "2", "8"],
    "batch_size": ["16", "64", "${threads}"],
    "prefetch": ["0", "1"],
    "iterations": ["null", "3"],
    "cache": ["cold", "warm", "as_is"],
    "benchmark.image_size": ["64", "224"],
    "benchmark.private_threads": ["null", "0", "3"],
    "benchmark": ["micro", "alexnet"],
    "accelerator": ["auto", "emulated"],
    "trace.interval_s": ["null", "0.5"],
    "dataset": ["demo", "caltech101"],
    "dataset.seed": ["1", "2"],
    "site": ["none", "blackdog"],
    "storage": ["local", "hdd", "optane"],
    "storage.root": ["data", "/x y"],
    "storage.shared": ["true", "false"],
    "storage.stripe_count": ["null", "4"],
    "cluster": ["local", "slurm"],
    "site.gpus_per_node": ["null", "1"],
    "checks.spread_max": ["0.1", "1e-3"],
    "+paper": ["fig4", "fig5"],
}
_grids = st.dictionaries(st.sampled_from(sorted(_VALUES)), st.integers(1, 2), min_size=1, max_size=3).map(
    lambda picks: {key: _VALUES[key][:count] for key, count in picks.items()}
)
_RECIPE_THREADS = (1, 2, 4, 8)


def _hydras_own(words):
    composer.register_defaults()
    with hydra.initialize_config_module("conf", version_base="1.3"):
        config = hydra.compose("config", overrides=list(words))
    return convert_point(OmegaConf.to_container(config, resolve=True))


def _points(grid):
    combinations = [[]]
    for key, values in grid.items():
        told = [f"{key}={value}" for value in values] or [key]
        combinations = [[*words, each] for words in combinations for each in told]
    return combinations


@pytest.mark.long
@settings(max_examples=5)
@given(_grids)
@example({"+paper": ["fig4", "fig5"]})
@example({"+paper": ["fig4"], "batch_size": ["16"]})
@example({"site": ["blackdog", "tegner"], "storage": ["hdd", "lustre"], "cluster": ["auto", "slurm"]})
@example({"site.gpus_per_node": ["1", "2"], "cluster": ["slurm"], "site.modules": ["[a]", "[${site.name}]"]})
@example({"site.spread_max": ["0.1", "0.2"], "prefetch": ["${batch_size}"], "batch_size": ["1", "2"]})
@example({"site": ["blackdog"], "storage": ["site"], "storage.name": ["hdd", "ssd"]})
@example({"dataset": ["demo", "caltech101"], "threads": ["1", "2"], "batch_size": ["${threads}", "16"]})
def test_every_point_of_a_grid_is_what_hydra_composes(grid):
    swept_by_recipe = "threads" not in grid and "+paper" in grid
    neither_size = {"batch_size", "dataset"} & grid.keys()  # numbers of the user's own
    of_a_recipe = {"+size": ["paper"]} if "+paper" in grid and not neither_size else {}
    points = _points(
        {**grid, "threads": _RECIPE_THREADS, **of_a_recipe} if swept_by_recipe else {**grid, **of_a_recipe}
    )

    found = collect_points(["-m", *(f"{key}={','.join(values)}" for key, values in grid.items())])

    assert sorted(found, key=repr) == sorted((_hydras_own(words) for words in points), key=repr)


_ODD_GRIDS = [
    {"cluster": ["slurm"], "+cluster.extra.nice": ["1", "2"], "cluster.parallel": ["3", "null"]},
    {"site": ["blackdog"], "~site.storages.hdd": [], "threads": ["1", "2"]},
]
_MORE_GRIDS = [
    {"checks.spread_max": ["0.3", "0.4"], "checks": ["{spread_max: 0.2}"], "seed": ["1", "2"]},
    {"storage.root": ["'1'", "'a,b'", "null", "''"]},
    {"checks": ["{spread_max: 0.2}"], "checks.spread_max": ["0.3", "0.4"]},
    {"threads": ["1", "2"], "trace.interval_s": ["1", "1.0"]},
    {"storage.root": ["''", "'1'"], "seed": ["01", "1"]},
    {"cluster": ["slurm"], "+cluster.extra.nice": ["10"], "threads": ["1", "2"]},
    {"cluster": ["slurm"], "+cluster.extra": ["{nice: 1}"], "+cluster.extra.comment": ["a b"], "prefetch": ["0", "1"]},
    {"cluster": ["slurm"], "cluster.modules": ["[gcc,cuda]"], "batch_size": ["8", "16"]},
    {"++threads": ["1", "2"], "++trace.interval_s": ["null", "1"], "cache": ["cold", "warm"]},
    {"checks": ["{spread_max: 0.2, other_cpu_max: 3}"], "threads": ["2", "3"]},
    {"cluster": ["slurm"], "+cluster.extra.a": ["1"], "~cluster.extra.a": [], "seed": ["7", "8"]},
]


@pytest.mark.parametrize(
    "grid", [*_ODD_GRIDS, *(pytest.param(grid, marks=pytest.mark.long) for grid in _MORE_GRIDS)], ids=" ".join
)
def test_words_that_add_replace_and_delete_mean_what_they_mean_to_hydra(grid):
    found = collect_points(["-m", *(f"{key}={','.join(values)}" if values else key for key, values in grid.items())])

    assert sorted(found, key=repr) == sorted(map(_hydras_own, _points(grid)), key=repr)


@pytest.mark.parametrize("word", ["+cluster.extra.nice=10", "++trace.interval_s=0.1", "++checks.spread_max=0.2"])
def test_hydra_composes_a_grid_of_numbers_once_whatever_stands_beside_them(word, monkeypatch):
    asked, compose = [], Composer.compose
    monkeypatch.setattr(Composer, "compose", lambda self, words: asked.append(words) or compose(self, words))

    assert len(collect_points(["-m", "cluster=slurm", "site=blackdog", word, "seed=range(50)", "threads=1,2"])) == 100
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("words", "key", "found"),
    [
        ("checkpoint=none,hdd,burst_buffer checkpoint.root=/a", "checkpoint.root", [None, "/a", None]),
        ("checkpoint=hdd,burst_buffer checkpoint.fast.root=/a,/b", "checkpoint.fast.root", [None, None, "/a", "/b"]),
        ("dataset=demo,folder dataset.path='/a,b' dataset.seed=${seed}", "dataset.path", [None, "/a,b"]),
        ("dataset=folder dataset.path=/a", "dataset.path", ["/a"]),  # nothing stands there but for this word
        ("dataset=folder dataset.path=/a,/b", "dataset.path", ["/a", "/b"]),
    ],
)
def test_a_key_of_a_choice_is_set_where_the_point_has_it(words, key, found):
    points = collect_points(["-m", *words.split()])

    assert [dict(flat_items(point)).get(key) for point in points] == found


@pytest.mark.parametrize(
    ("full", "error", "raised"),
    [
        ("", ZeroDivisionError(), ZeroDivisionError),  # a fault of ours is no wrong word
        ("", EnvironmentFaultError("x"), EnvironmentFaultError),
        ("", OverrideParseException("thread", "x"), UsageError),
        ("1", OverrideParseException("thread", "x"), OverrideParseException),
    ],
)
def test_what_hydra_complains_of_is_said_in_our_words_unless_its_own_are_asked_for(full, error, raised, monkeypatch):
    monkeypatch.setenv("HYDRA_FULL_ERROR", full)

    with pytest.raises(raised) as caught, explain_errors():
        raise error
    assert type(caught.value) is raised


def test_a_key_of_a_choice_that_no_point_has_is_refused():
    with pytest.raises(UsageError, match=r"unknown key 'checkpoint.fast.rot'") as caught:
        collect_points(["-m", "checkpoint=none,burst_buffer", "checkpoint.fast.rot=/x"])

    assert caught.value.hint == "did you mean 'checkpoint.fast.root'?"


@pytest.mark.parametrize(
    ("recipe", "swept"),
    [
        ("fig4", {"threads": [1, 2, 4, 8]}),
        ("fig5", {"threads": [1, 2, 4, 8]}),
        ("fig6", {"threads": [1, 2, 4, 8], "prefetch": [0, 1]}),
        ("fig7", {"batch_size": [16, 32, 64, 128], "prefetch": [0, 1]}),
        ("fig8", {"prefetch": [0, 1]}),
    ],
)
def test_a_recipe_is_the_papers_grid(recipe, swept):
    points = collect_points(["-m", f"+paper={recipe}"])

    grid = itertools.product(*swept.values())
    assert [tuple(point[key] for key in swept) for point in points] == list(grid)
    assert {point["size"] for point in points} == {"paper"}


@pytest.mark.parametrize(
    ("recipe", "targets"),
    [("fig9", ["none", "hdd", "ssd", "optane", "burst_buffer"]), ("fig10", ["hdd", "burst_buffer"])],
)
def test_a_recipe_of_checkpoints_has_the_papers_targets_and_its_five_snapshots(recipe, targets):
    points = collect_points(["-m", f"+paper={recipe}", "site=blackdog"])

    assert [point["checkpoint"]["name"] for point in points] == targets
    for point in points:
        assert (point["storage"]["name"], point["prefetch"], point["batch_size"]) == ("ssd", 1, 64)
        assert point["checkpoint"]["name"] == "none" or point["iterations"] // point["checkpoint"]["every"] == 5


def test_the_recipe_of_table_1_reads_and_writes_a_file_on_each_storage():
    points = collect_points(["-m", "+paper=table1", "site=blackdog", "storage=hdd,ssd"])

    found = {(point["storage"]["name"], point["benchmark"]["access"]) for point in points}
    assert found == {(name, access) for name in ("hdd", "ssd") for access in ("read", "write")}
    assert {point["benchmark"]["file_mb"] for point in points} == {5000}


def test_a_smoke_recipe_has_fewer_files_and_a_thinner_network():
    of_paper, of_smoke = (
        collect_points(["-m", *each])[0] for each in (["+paper=fig6"], ["+size=smoke", "+paper=fig6"])
    )

    assert (of_paper["dataset"]["files"], of_paper["benchmark"]["width"]) == (9144, 1.0)
    assert (of_smoke["dataset"]["files"], of_smoke["benchmark"]["width"]) == (192, 0.125)
    assert of_smoke["size"] == "smoke"


@pytest.mark.long
@pytest.mark.parametrize("size", ["smoke", "paper"])
def test_all_recipes_together_are_one_campaign(size):
    recipes = ",".join(sorted(path.stem for path in RECIPES.glob("*.yaml")))

    cells, conduct = make_cells(collect_points(["-m", f"+paper={recipes}", f"+size={size}", "site=twin"]))

    assert len(cells) == len({cell.id for cell in cells}) > len(recipes.split(","))
    plain = [cell.settings for cell in cells if cell.benchmark == "alexnet" and "profile" not in cell.settings]
    trainings = [each for each in plain if each["dataset"]["name"] == "caltech101"]
    assert {each["iterations"] for each in trainings} <= {None, 100 if size == "paper" else 10}, (
        "two recipes measure the same under two names"
    )
    assert conduct["size"] == size


@pytest.mark.parametrize(
    ("words", "size"),
    [
        (["threads=1"], None),
        (["benchmark=baseline", "+size=smoke"], "smoke"),
        (["+paper=fig6", "dataset.files=128"], None),
    ],
)
def test_only_a_recipe_with_its_own_numbers_is_said_to_be_the_papers(words, size):
    assert {point["size"] for point in collect_points(["-m", *words])} == {size}


@pytest.mark.parametrize(("iterations", "refused"), [("7", True), ("${by_size:7,2}", False)])
def test_a_size_is_refused_where_a_recipe_of_the_users_own_does_not_go_by_it(iterations, refused, tmp_path):
    (tmp_path / "paper").mkdir()
    recipe = f"# @package _global_\ndefaults:\n  - _self_\n\niterations: {iterations}\n"
    (tmp_path / "paper" / "mine.yaml").write_text(recipe)
    words = ["-m", "--config-dir", str(tmp_path), "+paper=mine", "+size=smoke"]

    with pytest.raises(UsageError, match="changes nothing here") if refused else nullcontext():
        assert collect_points(words)[0]["iterations"] == 2


def test_what_the_user_says_stands_above_the_recipe():
    (point,) = collect_points(["-m", "+paper=fig4", "threads=3", "iterations=3", "seed=7"])

    assert (point["threads"], point["iterations"], point["seed"]) == (3, 3, 7)


def test_a_users_own_storage_comes_from_their_configuration_folder(tmp_path):
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "scratch.yaml").write_text("defaults: [local, _self_]\nname: scratch\nroot: /scratch/me\n")

    (found,) = collect_points(["-m", "--config-dir", str(tmp_path), "storage=scratch"])

    assert (found["storage"]["name"], found["storage"]["root"]) == ("scratch", "/scratch/me")


def test_showing_a_configuration_collects_nothing(capsys):
    assert collect_points(["--cfg", "job", "checkpoint=hdd", "checkpoint.every=3"]) is None
    assert "every: 3" in capsys.readouterr().out


def test_equal_settings_are_one_cell(point):
    cells, _ = make_cells([point, copy.deepcopy(point), {**point, "threads": 9}])

    assert [cell.settings["threads"] for cell in cells] == [4, 9]


def test_an_option_of_sbatch_that_only_one_point_has_cannot_be_swept_either():
    other = composed("cluster=slurm", "+cluster.extra.nice=10")

    with pytest.raises(UsageError, match=r"cluster.extra.nice has several values \(None, 10\)"):
        make_cells([composed("cluster=slurm"), other])


@pytest.mark.parametrize(
    ("words", "datasets"),
    [
        ("benchmark=glob(*,exclude=command)", {"demo", "hep", "climate"}),
        ("benchmark=hepcnn,micro dataset=hep benchmark.preprocess=false", {"hep"}),
    ],
)
def test_each_benchmark_brings_a_dataset_that_it_runs_on_unless_one_is_named(words, datasets):
    points = collect_points(words.split())

    assert {point["dataset"]["name"] for point in points} == datasets
    assert len(make_cells(points)[0]) == len(points)


@pytest.mark.parametrize("constant", ["benchmark.preprocess=false", "storage.exclusive=none", "cache=as_is", "runs=1"])
def test_a_key_with_one_value_does_not_make_each_point_resolve_its_interpolations_anew(constant, monkeypatch):
    resolved, real = [], OmegaConf.to_container

    def counted(config, *, resolve=False, **how):
        resolved.append(resolve)
        return real(config, resolve=resolve, **how)

    monkeypatch.setattr(OmegaConf, "to_container", counted)

    points = collect_points(["seed=range(50)", constant])

    assert len(points) == 50
    assert sum(resolved) == 1
