"""Which cluster is taken, and what it cannot be asked for."""

import pytest

from campaign.cells.cell import make_cell
from campaign.cluster import choice
from campaign.errors import UsageError
from campaign.slurm import client


@pytest.fixture
def chosen(point):
    """The cluster of this name for a cell on a storage with this root."""

    def choose(name, root="/scratch", *, shared=True, detach=False):
        storage = {**point["storage"], "root": root, "shared": shared}
        return choice.chosen([make_cell({**point, "storage": storage})], {"cluster": {"name": name}, "detach": detach})

    return choose


@pytest.mark.parametrize(("is_cluster", "name"), [(True, "slurm"), (False, "local")])
def test_auto_is_slurm_where_there_is_a_cluster_and_says_which_it_took(is_cluster, name, chosen, monkeypatch):
    said = []
    monkeypatch.setattr(client, "found", lambda: is_cluster)
    monkeypatch.setattr(choice.console, "say", said.append)

    assert chosen("auto") == name
    assert said == [f"cluster=auto: {'Slurm' if is_cluster else 'this machine (there is no Slurm cluster)'}"]


@pytest.mark.parametrize(
    ("name", "root", "shared"),
    [("slurm", "data", True), ("slurm", "~/data", False), ("slurm", "/scratch", False), ("local", "data", False)],
)
def test_a_cluster_that_was_named_is_taken_without_a_question_where_runs_find_their_root(
    name, root, shared, chosen, programs
):
    programs("sbatch", "exit 1")
    programs("sinfo", "echo debug")

    assert chosen(name, root, shared=shared) == name
    assert programs.calls == []
    with pytest.raises(UsageError, match=r"needs an absolute storage\.root"):
        chosen("slurm", "data", shared=False)


@pytest.mark.parametrize("name", ["auto", "local", "debug"])
def test_work_can_be_left_to_a_slurm_that_is_there(name, chosen, monkeypatch):
    monkeypatch.setattr(client, "found", lambda: False)
    with pytest.raises(UsageError, match="detach=true") as refused:
        chosen(name, detach=True)
    assert "nohup" in refused.value.hint

    monkeypatch.setattr(client, "found", lambda: True)
    assert [chosen(name, detach=True) for name in ("auto", "slurm")] == ["slurm", "slurm"]
