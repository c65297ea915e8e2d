"""What people read of the settings is made of their declarations."""

from pathlib import Path

import pytest

from campaign.config import reference
from campaign.config.tree import CHOICES, NODES
from jobs.model.conduct import Running, SiteStorage, Slurm
from jobs.model.declared import MISSING, declared, defaults
from jobs.model.settings import Common, Side

KINDS = [
    Common,
    Running,
    SiteStorage,
    Side,
    *NODES.values(),
    *(kind for kinds in CHOICES.values() for kind in kinds.values()),
]
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "keys.md"


def test_the_page_of_keys_is_what_the_declarations_say():
    assert PAGE.read_text(encoding="utf-8").splitlines() == "\n".join(reference.as_markdown()).splitlines(), (
        "python -m campaign.config.reference > docs/reference/keys.md"
    )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_setting_says_what_it_means_and_has_a_legal_default(kind):
    for name, each in declared(kind).items():
        assert each.setting.help or each.node is each.type, name
        if name in defaults(kind) and each.node is None:
            assert each.read(each.default) == defaults(kind)[name], name
        if each.setting.smoke is not None:
            assert each.read(each.setting.smoke) == each.setting.smoke != each.default, name


def test_a_choice_is_shown_with_the_settings_that_it_has_and_with_its_own_values():
    (section,) = (each for each in reference.sections() if "stream" in {choice.name for choice in each.choices})

    assert [choice.name for choice in section.choices] == ["micro", "stream"]
    assert section.choices[1].values == "preprocess: false"
    assert section.choices[1].about.startswith("micro without preprocessing")
    assert "name" not in {each.name for each in section.rows}
    assert all(reference.default_of(each) == "…" for each in section.rows if each.default == MISSING)


@pytest.mark.parametrize(
    ("value", "read"), [(4711, "4711"), (1, 1.0), (True, 1), ("8", 8), (8.0, 8), (4.5, None), ("x", None), (None, None)]
)
def test_a_value_is_read_as_the_type_of_its_setting(value, read):
    kind = {str: "campaign_dir", float: "run_timeout_s", int: "runs"}[type(read)] if read is not None else "runs"
    each = declared(Running)["redo" if value is True else kind]

    if read is None:
        with pytest.raises(ValueError, match=r"range|whole number"):
            each.read(value)
    else:
        assert repr(each.read(value)) == repr(True if value is True else read)


def test_the_items_of_a_list_are_read_as_what_they_are():
    assert declared(Slurm)["modules"].read([2024, "gcc"]) == ["2024", "gcc"]
    with pytest.raises(ValueError, match="is no list"):
        declared(Slurm)["modules"].read([["gcc"]])
