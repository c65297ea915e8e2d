"""What recipes ask of a site's storages, and which words mean something to them."""

import itertools
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from campaign.config import recipes
from campaign.config.command_line import depends_on_size
from jobs.model.settings import flat_items

PAPER = ("hdd", "ssd", "optane", "lustre")
MICRO = recipes.Recipe("fig4", "micro", None, ())
SAVES = recipes.Recipe("fig9", "alexnet", "ssd", ("none", "hdd", "ssd", "optane", "burst_buffer"))
WRITES = recipes.Recipe("fig10", "alexnet", "ssd", ("hdd", "burst_buffer"))


@pytest.mark.parametrize(
    ("recipe", "have", "asked"),
    [
        (MICRO, PAPER, ["storage=hdd,ssd,optane,lustre"]),
        (MICRO, [], ["storage=local"]),
        (MICRO, ["scratch"], ["storage=scratch"]),
        (SAVES, PAPER, []),
        (WRITES, PAPER, []),
        (SAVES, ["ssd", "hdd"], ["checkpoint=none,hdd,ssd"]),
        (SAVES, [], ["storage=local", "checkpoint=none,local"]),
        (WRITES, [], ["storage=local", "checkpoint=local"]),
        (SAVES, ["lustre", "scratch"], ["storage=lustre", "checkpoint=none,lustre,scratch"]),
        (WRITES, ["scratch"], ["storage=scratch", "checkpoint=scratch"]),
    ],
)
def test_a_recipe_is_asked_for_on_what_the_site_has(recipe, have, asked):
    assert recipes.recipe_overrides(recipe, [], recipes.SiteStorages(tuple(have))) == [f"+paper={recipe.name}", *asked]


@pytest.mark.parametrize("word", ["storage=site", "storage.root=/x", "checkpoint=none", "+checkpoint.every=5"])
def test_the_words_of_the_user_decide(word):
    group = word.lstrip("+").partition("=")[0].partition(".")[0]

    for recipe, have in itertools.product((MICRO, SAVES, WRITES), ([], ["scratch"], PAPER)):
        words, here = recipes.take_storage_choice([word], have)
        assert words == [word]
        assert not any(each.startswith(group) for each in recipes.recipe_overrides(recipe, words, here))


@pytest.mark.parametrize(
    ("have", "lacks"),
    [(PAPER, []), (["hdd", "ssd"], ["optane", "burst_buffer"]), ([], ["hdd", "ssd", "optane", "burst_buffer"])],
)
def test_what_a_site_has_not_is_named(have, lacks):
    assert recipes.missing_targets(SAVES, [], recipes.SiteStorages(tuple(have))) == lacks


@pytest.mark.parametrize(
    ("words", "recipe", "have", "replacing"),
    [
        ([], SAVES, PAPER, None),
        ([], SAVES, ["hdd", "lustre"], "hdd"),
        ([], SAVES, [], "local"),
        ([], MICRO, ["hdd"], None),
        (["storage=tmpfs,hdd"], SAVES, PAPER, "tmpfs"),
        (["storage=hdd,ssd"], SAVES, PAPER, None),
        (["storage.root=/x"], SAVES, [], None),
    ],
)
def test_a_storage_that_replaces_that_of_a_recipe_is_named(words, recipe, have, replacing):
    own, here = recipes.take_storage_choice(words, have)

    assert recipes.replacing_storage(recipe, own, here) == replacing


@pytest.mark.parametrize(
    ("word", "recipe", "asked"),
    [
        ("storage=hdd,ssd", MICRO, ["storage=hdd,ssd"]),
        ("storage=hdd,ssd", SAVES, []),
        ("storage=tmpfs,hdd", SAVES, ["storage=tmpfs"]),
        ("storage=local", WRITES, ["storage=local"]),
    ],
)
def test_storages_that_are_named_are_read_from_and_targets_stay_the_sites(word, recipe, asked):
    words, here = recipes.take_storage_choice(["threads=2", word], PAPER)

    assert words == ["threads=2"]
    assert recipes.recipe_overrides(recipe, words, here) == [f"+paper={recipe.name}", *asked]


@pytest.mark.parametrize(
    ("word", "benchmarks"),
    [
        ("benchmark.width=0.5", {"alexnet"}),
        ("benchmark.image_size=32", {"alexnet", "micro"}),
        ("benchmark.file_mb=20", {"baseline"}),
        ("accelerator=emulated", {"alexnet"}),
        ("checkpoint=hdd", {"alexnet"}),
        ("cache=warm", {"alexnet", "micro"}),
        ("iterations=2", {"alexnet", "micro"}),
        ("runs=3", {"alexnet", "micro", "baseline"}),
    ],
)
def test_a_word_is_meant_for_the_benchmarks_that_know_it(word, benchmarks):
    taking = [recipe for recipe in recipes.list_recipes() if recipe.accepted_overrides([word])]

    assert {recipe.benchmark for recipe in taking} == benchmarks
    assert word != "checkpoint=hdd" or [recipe.name for recipe in taking] == ["fig9", "fig10"]


def test_each_number_that_a_recipe_has_by_its_size_is_known_as_such():
    """A word that sets one makes another campaign of the recipe than the paper's."""
    for file in sorted((Path(__file__).parents[3] / "conf" / "paper").glob("*.yaml")):
        node = OmegaConf.to_container(OmegaConf.create(file.read_text(encoding="utf-8")), resolve=False)
        params = node.pop("hydra", {}).get("sweeper", {}).get("params", {})
        sized = [key for key, value in [*flat_items(node), *params.items()] if "by_size" in str(value)]

        assert sized or file.stem == "table1" or node["defaults"][0].startswith("tfdarshan"), file.stem
        assert [key for key in sized if not depends_on_size(f"{key}=1")] == [], file.stem
