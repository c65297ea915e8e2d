"""The words of the campaign that a stall is: whatever a program's arguments hold, it gets them."""

from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from campaign.config.collect import collect
from campaign.stall.program_grid import Program, literal

ODD = r"""a'b"c\${d} = [e,f] {threads} \'\\"""
ARGUMENTS = st.lists(st.text("ab'\"\\${}[],=: \n~#%é", max_size=12), min_size=1, max_size=3)


@given(ARGUMENTS)
@example([ODD])
@example(["\\"])
@example(["\\'", "${a}", "\\${a}", "\\\\${a}\\"])
def test_an_argument_reaches_the_program_as_it_was_typed(arguments):
    word = f"benchmark.argv=[{','.join(map(literal, arguments))}]"

    value = OverridesParser.create().parse_override(word).value()

    assert OmegaConf.to_container(OmegaConf.create({"argv": value}), resolve=True)["argv"] == arguments


def test_through_the_whole_configuration_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = Program(["prog", ODD], Path("/it's here"), None, r"epoch (\d+)", cold=False)

    points = collect(program.grid(5, ["cluster=local"]))

    assert [point["cache"] for point in points] == ["cold", "warm"]
    assert points[0]["benchmark"]["argv"] == ["prog", ODD]
    assert points[0]["benchmark"]["begins"] == r"epoch (\d+)"
    assert points[0]["dataset"]["path"] == "/it's here"
    assert (points[0]["runs"], points[0]["warmup_runs"], points[0]["in_turn"]) == (6, 1, True)


@pytest.mark.parametrize(
    ("own", "cold", "there", "not_there"),
    [
        (["runs=3"], False, "runs=3", "runs=6"),
        ([], True, "cache=cold", "cache=cold,warm"),
        (["campaign_dir=here", "cluster=slurm"], False, "campaign_dir=here", "campaign_dir=stall"),
    ],
)
def test_own_words_win(own, cold, there, not_there):
    words = Program(["prog"], Path("/data"), Path("/list"), None, cold=cold).grid(5, own)

    assert there in words
    assert not_there not in words
    assert 'dataset.list="/list"' in words
