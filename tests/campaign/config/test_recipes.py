"""What `reproduce` asks of a site's storages."""

import itertools

import pytest

from campaign import console
from campaign.cli import reproduce, run
from campaign.config import recipes
from campaign.config.collect import collect
from campaign.config.points import cells_of
from campaign.errors import UsageError

PAPER = ("hdd", "ssd", "optane", "lustre")
MICRO = recipes.Recipe("fig4", "micro", None, ())
SAVES = recipes.Recipe("fig9", "alexnet", "ssd", ("none", "hdd", "ssd", "optane", "burst_buffer"))
WRITES = recipes.Recipe("fig10", "alexnet", "ssd", ("hdd", "burst_buffer"))


def test_the_recipes_are_those_of_the_folder_and_what_they_ask_for():
    found = recipes.recipes()

    names = [recipe.name for recipe in found if recipe.name.startswith("fig")]
    assert names == ["fig4", "fig5", "fig6", "fig7", "fig8", "fig9", "fig10"]
    assert [recipe for recipe in found if recipe.name in ("fig4", "fig9", "fig10")] == [MICRO, SAVES, WRITES]


def test_what_emulated_nodes_read_is_no_storage_of_the_paper():
    assert reproduce._storages(["site=twin"]) == list(PAPER)  # noqa: SLF001


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
    assert recipes.grid(recipe, [], recipes.Here(tuple(have))) == [f"+paper={recipe.name}", *asked]


@pytest.mark.parametrize("word", ["storage=site", "storage.root=/x", "checkpoint=none", "+checkpoint.every=5"])
def test_the_words_of_the_user_decide(word):
    group = word.lstrip("+").partition("=")[0].partition(".")[0]

    for recipe, have in itertools.product((MICRO, SAVES, WRITES), ([], ["scratch"], PAPER)):
        words, here = recipes.choose([word], have)
        assert words == [word]
        assert not any(each.startswith(group) for each in recipes.grid(recipe, words, here))


@pytest.mark.parametrize(
    ("have", "lacks"),
    [(PAPER, []), (["hdd", "ssd"], ["optane", "burst_buffer"]), ([], ["hdd", "ssd", "optane", "burst_buffer"])],
)
def test_what_a_site_has_not_is_named(have, lacks):
    assert recipes.lacking(SAVES, [], recipes.Here(tuple(have))) == lacks


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
    words, here = recipes.choose(["threads=2", word], PAPER)

    assert words == ["threads=2"]
    assert recipes.grid(recipe, words, here) == [f"+paper={recipe.name}", *asked]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A site with two of the paper's storages; returns the words that name it."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "conf" / "site").mkdir(parents=True)
    storages = "".join(f"  {name}: {{root: {folder}/{name}}}\n" for name in ("hdd", "ssd"))
    text = f"defaults: [none, _self_]\nname: mine\nstorages:\n{storages}  gone: {{root: null}}\n"
    (folder / "conf" / "site" / "mine.yaml").write_text(text)
    return "--config-dir", str(folder / "conf"), "site=mine", "+size=smoke", "cluster=local"


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """Call `reproduce` and return the plan that would have been carried out, and the words it was asked for with."""

    def ask(*words):
        seen = []
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(tmp_path_factory.mktemp("asked"))
            patch.setattr(run, "carry_out", lambda planned, argv, _: seen.append((planned, argv)) or 0)
            assert reproduce.main(words) == 0
        return seen.pop()

    return ask


@pytest.fixture(scope="module")
def some(ask, site):
    """The plan of three recipes."""
    three = [recipe for recipe in recipes.recipes() if recipe.name in ("table1", "fig4", "fig8")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipes, "recipes", lambda _: three)
        planned, argv = ask(*site)
    assert argv == ["reproduce", *site]
    return planned


@pytest.mark.long
def test_reproduce_is_every_recipe_on_every_storage_as_one_campaign(ask, site):
    planned, _ = ask(*site)
    cells = {entry.cell.id: entry.cell for entry in planned.entries}
    flags, words = site[:2], site[2:]
    for recipe in ("fig4", "fig5", "fig6", "fig7", "fig8"):
        alone = collect(["-m", *flags, *words, f"+paper={recipe}", "storage=hdd,ssd"])
        assert {cell.id for cell in cells_of(alone)[0]} <= cells.keys()
    targets = {cell.settings["checkpoint"]["name"] for cell in cells.values() if cell.benchmark == "alexnet"}
    assert targets == {"none", "hdd", "ssd"}


def test_each_cell_has_the_baseline_of_its_own_file_size_and_readers(some):
    settings = [entry.cell.settings for entry in some.entries]

    small = [each for each in settings if each["benchmark"].get("access") == "random_read"]
    kinds = [(each["storage"]["name"], each["dataset"], each["threads"]) for each in small]
    cells = [each for each in settings if each["benchmark"]["name"] != "baseline"]
    assert len(cells) > len(kinds)
    for each in cells:
        assert kinds.count((each["storage"]["name"], each["dataset"], each["threads"])) == 1
    assert {each["benchmark"]["access"] for each in settings if each not in cells} == {"read", "write", "random_read"}


def test_the_price_is_said_and_nothing_starts_without_a_yes(some, site, monkeypatch, tmp_path):
    said, questions, started = [], [], []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reproduce, "_points", lambda *_: [])
    monkeypatch.setattr(run, "planned", lambda _: some)
    monkeypatch.setattr(run, "carry_out", lambda *words: started.append(words) or 0)
    monkeypatch.setattr(console, "say", said.append)
    monkeypatch.setattr(console, "agreed", lambda question: bool(questions.append(question)))

    codes = reproduce.main(site), reproduce.main([*site, "--yes"])

    assert codes == (1, 0)
    assert (len(questions), len(started)) == (1, 1)
    assert any("runs with warm-ups; how long they take is not known" in line for line in said)


@pytest.mark.parametrize(
    ("word", "why"),
    [("+paper=fig4", "every recipe"), ("++paper=fig4", "every recipe"), ("paper=fig4", "none that has recipes")],
)
def test_reproduce_takes_no_recipe(word, why):
    with pytest.raises(UsageError, match=why):
        reproduce.main([word])


def test_a_paper_has_the_baselines_and_its_own_figures():
    first, second = (recipes.recipes([paper]) for paper in recipes.PAPERS)

    assert {*first} & {*second} == {first[0]} == {second[0]}
    names = [recipe.name.removeprefix("tfdarshan_fig") for recipe in second[1:]]
    assert names == ["3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "5_malware"]
    assert recipes.recipes(list(recipes.PAPERS)) == [*first, *second[1:]]
    by_name = {recipe.name: recipe for recipe in second}
    of_staging, written = by_name["tfdarshan_fig12"], by_name["tfdarshan_fig6"]
    assert (of_staging.benchmark, of_staging.storage, written.targets) == ("malware", "hdd", ("hdd",))
    assert of_staging.takes(["benchmark.row_bytes=64", "benchmark.preprocess=true"]) == ["benchmark.row_bytes=64"]


def test_cells_that_read_copies_wait_until_the_copies_are_made(tmp_path, point, capfd):
    points = [{**point, "campaign_dir": str(tmp_path), "staging": rule} for rule in ("none", "smallest", "advised")]
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging" / "advised.json").write_text("{}")

    kept = reproduce._with_copies(points)  # noqa: SLF001

    assert [each["staging"] for each in kept] == ["none", "advised"]
    assert "without 1 cell of staging=smallest" in capfd.readouterr().err


@pytest.mark.parametrize("words", [["--cfg", "job"], ["--info=defaults"], ["--hydra-help"]])
def test_reproduce_has_no_single_configuration_to_show(words, capsys):
    with pytest.raises(UsageError, match=f"no single configuration for {words[0]}") as caught:
        reproduce.main([*words, "+size=smoke"])

    assert "--dry-run lists its cells" in caught.value.hint
    assert capsys.readouterr().out == ""


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
    taking = [recipe for recipe in recipes.recipes() if recipe.takes([word])]

    assert {recipe.benchmark for recipe in taking} == benchmarks
    assert word != "checkpoint=hdd" or [recipe.name for recipe in taking] == ["fig9", "fig10"]


@pytest.mark.parametrize("word", ["benchmark.widht=0.5", "benchmark=micro"])
def test_a_word_that_means_nothing_to_any_recipe_is_refused(site, word):
    with pytest.raises(UsageError, match="no recipe knows"):
        reproduce.main([*site, word])


def test_an_error_names_the_recipe_that_it_is_of(site, monkeypatch):
    monkeypatch.setattr(recipes, "recipes", lambda _: [MICRO])

    with pytest.raises(UsageError, match=r"^fig4: "):
        reproduce.main([*site, "iterations=200", "--dry-run"])
