"""`python -m campaign stage` as its user speaks it."""

import json
from pathlib import Path

import pytest

from campaign.cli import stage
from campaign.errors import UsageError
from jobs.profiler import Profile


@pytest.fixture
def profile(tmp_path):
    """The profile of a program that read ten files, which are in memory now."""
    data = tmp_path / "data"
    data.mkdir()
    for number in range(10):
        (data / f"{number}.bin").write_bytes(bytes(20_000))
    with Profile("counters", only=[data]) as seen:
        for path in sorted(data.iterdir()):
            path.read_bytes()
    seen.save(tmp_path / "window.npz")
    return tmp_path / "window.npz"


def test_of_files_that_come_from_memory_nothing_is_advised_and_nothing_is_copied(profile, tmp_path, capsys):
    words = f"plan {profile} --data {tmp_path}/data --fast {tmp_path} --out {tmp_path}/p".split()

    assert stage.main([*words, "--capacity", "1MB", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["files"], told["bytes"], told["capacity_bytes"]) == (10, 200_000, 1_000_000)
    assert stage.main(words) == 0
    assert "staging cannot help" in capsys.readouterr().out
    with pytest.raises(UsageError, match="stages nothing by the rule advised"):
        stage.main(["apply", str(tmp_path / "p")])
    assert not list(Path(tmp_path, "staged").glob("*/*.bin"))


@pytest.mark.parametrize(
    ("words", "why"),
    [(["window.npz", "--fast", "."], "--data FOLDER"), (["data", "--fast", "."], "no campaign in"),
     (["window.npz", "--data", "p", "--fast", "."], "has read no file below")],
)  # fmt: skip
def test_what_cannot_be_planned_is_refused_with_the_cure(words, why, profile, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UsageError) as error:
        stage.main(["plan", *words])

    assert why in f"{error.value.message} {error.value.hint}"


@pytest.mark.parametrize(("text", "size"), [("10GB", 10**10), ("1.5MB", 1_500_000), ("4096", 4096), ("2 kb", 2000)])
def test_a_capacity_is_read_in_powers_of_ten(text, size):
    assert stage._size(text) == size  # noqa: SLF001
