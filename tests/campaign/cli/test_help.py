"""What the help says: what there is to do in 30 lines, and what each word is."""

import pytest

from campaign.__main__ import run_guarded
from campaign.config import reference
from campaign.verbs import VERBS


@pytest.fixture
def helped(capsys, monkeypatch):
    """What the words print, on a terminal of so many columns."""

    def say(*words, columns=80):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert run_guarded([*words]) == 0
        return capsys.readouterr().out

    return say


def test_what_there_is_to_do_has_a_line_for_each_verb_and_fits_a_terminal(helped):
    lines = helped("-m", "threads=1", "--help").splitlines()

    assert len(lines) <= 30
    assert max(map(len, lines)) <= 80
    assert {verb for verb, does in VERBS.items() if f"  {verb:29} {does}" not in lines} == set()
    assert helped("help").splitlines() == lines


def test_a_choice_whose_file_begins_without_a_comment_has_none(helped):
    shown = helped("help", "accelerator")

    assert "  accelerator=unet3d_h100\n" in shown
    assert "efaults" not in shown


def test_a_key_has_its_type_range_unit_default_and_meaning(helped):
    shown = helped("help", "prefetch", columns=200)

    for line in (
        "prefetch             KEY=VALUE: settings that can change a result",
        "type      whole number", "range     0 to 1,024 batches", "unit      batches", "default   0",
        "meaning   number of batches that the pipeline prepares",
    ):  # fmt: skip
        assert line in shown
    assert "does not change the id" not in shown
    assert "this setting does not change the id of the cell" in helped("help", "storage.shared")


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("every", ["profile.every", "checkpoint.every", "(smoke: 2)"]),
        ("checkpoint.every=5", ["checkpoint.every", "steps between two snapshots"]),
        ("cache", ["one of cold, warm, as_is"]),
        ("dataset.path", ["none: you must set a value"]),
        ("dataset", ["dataset=demo  # A small dataset", "files: 512", "dataset.sigma="]),
        ("storage", ["storage=local  # The disk of this machine", "root: data"]),
        ("checks", ["checks.KEY=VALUE: limits of the checks", "checks.throttled_max=0.01"]),
        ("recipes", ["fig4             # Figure 4 of Chien et al. 2018", "+size=smoke"]),
        ("+paper=fig4", ["Recipes"]),
        ("size", ["size=smoke  # Every recipe in minutes"]),
        ("testbed.hdd", None),
        ("hdd", ["testbed up hdd.KEY=VALUE: a hard disk", "hdd.rpm=7200"]),
        ("optane.channels", ["default   6"]),
        ("ssd.channels", ["default   8"]),
    ],
)
def test_each_word_is_explained(word, shown, helped, capsys):
    if shown is None:
        assert run_guarded(["help", word]) == 2
        assert "did you mean" in capsys.readouterr().err
        return
    said = helped("help", word, columns=200)

    assert [text for text in shown if text not in said] == []
    assert "${" not in said


@pytest.mark.parametrize(("word", "meant"), [("thread", "'threads'"), ("recipe", "'recipes'"), ("staus", "'status'")])
def test_what_is_nothing_is_told_with_what_may_be_meant(word, meant, capsys):
    assert run_guarded(["help", word]) == 2
    said = capsys.readouterr().err
    assert f"no help on '{word}'" in said
    assert f"did you mean {meant}" in said


def test_what_is_near_to_nothing_is_told_where_all_keys_are_listed(capsys):
    assert run_guarded(["help", "qqqqqqqq"]) == 2

    assert "hint: python -m campaign help keys lists all keys" in capsys.readouterr().err


def test_all_keys_and_groups_are_listed_as_they_are_typed(helped):
    shown = helped("help", "keys", columns=1000)

    assert {key for key in reference.list_keys() if f"  {key}=" not in shown} == set()
    assert "  threads=4          # number of files that are read and decoded in parallel" in shown
    assert "\ncheckpoint=hdd, local, " in shown
    assert "defaults" not in shown.replace("its default", "")
    assert "${" not in shown


def test_choices_of_ones_own_are_listed_too(helped, tmp_path, monkeypatch):
    for group, name in (("site", "mine"), ("paper", "my_figure")):
        (tmp_path / group).mkdir()
        (tmp_path / group / f"{name}.yaml").write_text("# @package _global_\n# What is mine.\ndefaults: [_self_]\n")
    monkeypatch.setenv("CAMPAIGN_CONFIG_DIR", str(tmp_path))

    assert "site=mine  # What is mine." in helped("help", "site")
    assert "my_figure        # What is mine." in helped("help", "recipes")


def test_the_list_is_as_wide_as_the_terminal_and_says_no_less(helped):
    said = {width: helped("help", "keys", columns=width) for width in (100, 1000)}

    assert max(map(len, said[100].splitlines())) <= 100
    long = next(line for line in said[1000].splitlines() if len(line) > 110 and 20 < line.find("# ") < 40)
    half = long.index("# ") + 2
    for width, below in (
        (2 * half, "# ".rjust(half)),
        (2 * half - 1, "    # "),
    ):  # in the right half there is little room
        lines = helped("help", "keys", columns=width).splitlines()
        first = next(place for place, line in enumerate(lines) if line.strip() and long.startswith(line))
        assert lines[first + 1].startswith(below)
    assert said[100].replace("#", "").split() == said[1000].replace("#", "").split()


@pytest.mark.parametrize("verb", sorted({*VERBS} - {"help"}))
@pytest.mark.parametrize("words", [["help", "{}"], ["{}", "--help"]], ids=" ".join)
def test_each_verb_has_its_help(verb, words, capfd):
    assert run_guarded([word.format(verb) for word in words]) == 0

    keys_only = (words[0], verb) == ("help", "testbed")
    assert ("testbed up hdd.KEY=VALUE" if keys_only else f"python -m campaign {verb}") in capfd.readouterr().out
