"""What people read of the settings is made of their declarations."""

import itertools
import re

import pytest

from campaign.config import reference
from campaign.config.tree import CHOICES, NODES
from jobs.model.conduct import ConductKeys, SiteStorage, SlurmCluster
from jobs.model.declared import MISSING, declared_defaults, declared_settings
from jobs.model.settings import BufferSide, Common

KINDS = [
    Common,
    ConductKeys,
    SiteStorage,
    BufferSide,
    *NODES.values(),
    *(kind for kinds in CHOICES.values() for kind in kinds.values()),
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_setting_says_what_it_means_and_has_a_legal_default(kind):
    for name, each in declared_settings(kind).items():
        assert each.setting.help or each.node is each.type, name
        if name in declared_defaults(kind) and each.node is None:
            assert each.read(each.default) == declared_defaults(kind)[name], name
        if each.setting.smoke is not None:
            assert each.read(each.setting.smoke) == each.setting.smoke != each.default, name


def test_a_choice_is_shown_with_the_settings_that_it_has_and_with_its_own_values():
    (section,) = (each for each in reference.list_sections() if "stream" in {choice.name for choice in each.choices})

    assert [choice.name for choice in section.choices] == ["micro", "stream"]
    assert section.choices[1].values == "preprocess: false"
    assert section.choices[1].about.startswith("micro without preprocessing")
    assert "benchmark.name" not in dict(section.rows)
    assert all(reference.format_default(each) == "…" for _, each in section.rows if each.default == MISSING)


def test_the_keys_of_a_node_within_a_node_are_shown_as_they_are_typed():
    keys = {key for section in reference.list_sections() for key, _ in section.rows}

    assert {"checkpoint.fast.root", "checkpoint.slow.name", "site.storages.NAME.root", "site.storages"} <= keys
    assert "checkpoint.fast" not in keys  # nobody types a mapping there


def test_the_page_begins_with_a_list_of_its_sections_and_a_title_is_what_is_typed():
    before, _, behind = "\n".join(reference.format_markdown()).partition("\n## ")
    titles = re.findall(r"^## (.+)$", f"## {behind}", re.MULTILINE)

    assert re.findall(r"^- \[(.+)\]\(#", before, re.MULTILINE) == titles
    assert len(set(titles)) == len(titles)
    assert "`checks.KEY=VALUE`: limits of the checks" in titles
    assert "`benchmark=micro, stream`: reading of a folder of images" in titles


def as_text():
    return itertools.chain.from_iterable(map(reference.format_section, reference.list_sections()))


@pytest.mark.parametrize("page", [reference.format_markdown, as_text])
def test_numbers_are_shown_in_full(page):
    text = "\n".join(page())

    assert re.findall(r"(?<!@)\de\+?\d", text) == []
    assert "1 to 1,000,000,000 batches" in text
    assert "0 to 2,147,483,647" in text
    assert re.search(r"run_timeout_s`? ?[|=] ?`?3600[` ]", text)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_text_of_a_setting_is_a_noun_phrase_and_does_not_list_its_choices(kind):
    for name, each in declared_settings(kind).items():
        first = each.setting.help.partition(" ")[0]

        assert first not in {"of", "in", "by", "may", "is", "are", "do", "does", "must", "null:", "that", "for"}, name
        assert "|" not in each.setting.help, name
        assert each.setting.unit not in {"seconds", "minutes"} or each.bounds, name
        assert not name.endswith("_s") or name.endswith("_per_s") or each.setting.unit == "seconds", name


@pytest.mark.parametrize(
    ("value", "read"), [(4711, "4711"), (1, 1.0), (True, 1), ("8", 8), (8.0, 8), (4.5, None), ("x", None), (None, None)]
)
def test_a_value_is_read_as_the_type_of_its_setting(value, read):
    kind = {str: "campaign_dir", float: "run_timeout_s", int: "runs"}[type(read)] if read is not None else "runs"
    each = declared_settings(ConductKeys)["redo" if value is True else kind]

    if read is None:
        with pytest.raises(ValueError, match=r"range|whole number"):
            each.read(value)
    else:
        assert repr(each.read(value)) == repr(True if value is True else read)


def test_the_items_of_a_list_are_read_as_what_they_are():
    assert declared_settings(SlurmCluster)["modules"].read([2024, "gcc"]) == ["2024", "gcc"]
    with pytest.raises(ValueError, match="is no list"):
        declared_settings(SlurmCluster)["modules"].read([["gcc"]])
