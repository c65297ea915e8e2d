"""The fast composition equals Hydra's own."""

from __future__ import annotations

import hydra
import pytest
from hydra.core.global_hydra import GlobalHydra
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from campaign.config.collect import collect, register

_VALUES = {
    "threads": ["1", "2", "8"],
    "batch_size": ["16", "64", "${threads}"],
    "prefetch": ["0", "1"],
    "iterations": ["null", "3"],
    "cache": ["cold", "warm", "as_is"],
    "benchmark.preprocess": ["true", "false"],
    "benchmark.private_threads": ["null", "0", "3"],
    "dataset": ["demo", "caltech101"],
    "dataset.seed": ["1", "2"],
    "site": ["none", "blackdog"],
    "storage": ["local", "hdd", "optane"],
    "storage.root": ["data", "/x y"],
    "storage.shared": ["true", "false"],
    "storage.stripe_count": ["null", "4"],
    "cluster": ["local", "slurm"],
    "site.partition": ["null", "gpu"],
    "checks.spread_max": ["0.1", "1e-3"],
    "+paper": ["fig4", "fig5"],
}
_grids = st.dictionaries(st.sampled_from(sorted(_VALUES)), st.integers(1, 2), min_size=1, max_size=3).map(
    lambda picks: {key: _VALUES[key][:count] for key, count in picks.items()}
)
_RECIPE_THREADS = (1, 2, 4, 8)


def _hydras_own(words):
    register()
    with hydra.initialize_config_module("conf", version_base="1.3"):
        config = hydra.compose("config", overrides=list(words))
    return OmegaConf.to_container(config, resolve=True, enum_to_str=True)


def _points(grid):
    combinations = [[]]
    for key, values in grid.items():
        combinations = [[*words, f"{key}={value}"] for words in combinations for value in values]
    return combinations


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_grids)
@example({"+paper": ["fig4", "fig5"]})
@example({"site": ["blackdog", "tegner"], "storage": ["hdd", "lustre"], "cluster": ["auto", "slurm"]})
@example({"site.partition": ["gpu", "cpu"], "cluster": ["slurm"], "site.modules": ["[a]", "[${site.name}]"]})
@example({"site.spread_max": ["0.1", "0.2"], "prefetch": ["${batch_size}"], "batch_size": ["1", "2"]})
@example({"site": ["blackdog"], "storage": ["site"], "storage.name": ["hdd", "ssd"]})
@example({"dataset": ["demo", "caltech101"], "threads": ["1", "2"], "batch_size": ["${threads}", "16"]})
def test_every_point_of_a_grid_is_what_hydra_composes(grid):
    swept_by_recipe = "threads" not in grid and "+paper" in grid
    points = _points({**grid, "threads": _RECIPE_THREADS} if swept_by_recipe else grid)

    found = collect(["-m", *(f"{key}={','.join(values)}" for key, values in grid.items())])

    assert sorted(found, key=repr) == sorted((_hydras_own(words) for words in points), key=repr)


def test_an_added_key_and_a_mapping_take_hydras_own_path_and_equal_it():
    words = ["checks={spread_max: 0.2, other_cpu_max: 3}", "threads=2"]

    assert collect(["-m", *words]) == [_hydras_own(words)]


def test_a_recipe_is_a_grid_and_the_command_line_overrides_it():
    assert [point["threads"] for point in collect(["-m", "+paper=fig4"])] == [1, 2, 4, 8]
    assert [point["threads"] for point in collect(["-m", "+paper=fig4", "threads=3"])] == [3]


def test_a_users_own_storage_comes_from_their_configuration_folder(tmp_path):
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage" / "scratch.yaml").write_text("defaults: [local, _self_]\nname: scratch\nroot: /scratch/me\n")

    (found,) = collect(["-m", "--config-dir", str(tmp_path), "storage=scratch"])

    assert (found["storage"]["name"], found["storage"]["root"]) == ("scratch", "/scratch/me")


def test_hydras_own_sweeper_may_be_chosen(tmp_path):
    found = collect(["-m", "hydra/sweeper=basic", f"campaign_dir={tmp_path}", "threads=1,2"])

    assert [point["threads"] for point in found] == [1, 2]


def test_nothing_is_written_by_collecting(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    collect(["-m", "threads=1,2"])

    assert list(tmp_path.iterdir()) == []


def test_showing_a_configuration_collects_nothing(capsys):
    assert collect(["--cfg", "job", "threads=3"]) is None
    assert "threads: 3" in capsys.readouterr().out


@pytest.fixture(autouse=True)
def _clean_hydra():
    yield
    GlobalHydra.instance().clear()
