"""What bounds a cell has one answer: `show`, its JSON and the report say the same word, by the limits of the record."""

import pytest

from tests.acceptance import door

# Ten seconds of one thread on a machine of two processors: it decodes for 9.5 s, and hardly waits for its storage.
BUSY = {"elapsed_s": 10.01, "load_s": 9.95, "cpu_s": 9.5}


def cell(*, checks=None, threads=1, **changes):
    """A cell of three such runs, with other values of their keys, and limits of the site."""
    made = door.record(*(door.run(n, 51.2, **BUSY | changes) for n in (1, 2, 3)), threads=threads)
    made["terms"]["checks"] |= checks or {}
    made["terms"]["of_site"] |= checks or {}
    return made


def answers(folder, made):
    """What `show --json` answers, and the word of each place that says what bounds the cell."""
    name, results = made["cell"]["id"], door.stored(folder / "r", made)
    shown, text = (door.cli("show", name, results, *flags, cwd=folder) for flags in (["--json"], []))
    assert (shown.code, text.code) == (0, 0), text.err
    assert door.cli("report", results, cwd=folder).code == 0
    (line,) = (line for line in text.out.splitlines() if "bound by" in line)
    column = door.table(results, "medians").bound.fillna("").item()
    return shown.json, {shown.json["bound"]["word"], line.split("bound by ")[1].split(":")[0].split(",")[0], column}


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({}, "decoding"),
        ({"other_cpu": 1.0, "checks": {"other_cpu_max": 2.0}}, "decoding"),  # the README's own example
        ({"cpu_s": 1.0}, "undecided"),
    ],
)
def test_all_places_say_one_word(changes, word, tmp_path):
    answer, words = answers(tmp_path, cell(**changes))

    assert words == {word}
    assert bool(answer["bound"]["helps"]) is (word != "undecided")


def test_what_would_help_is_a_setting_and_a_command_and_what_it_gave(tmp_path):
    answer, _ = answers(tmp_path, cell())
    assert answer["bound"]["try"] == {"threads": 2}
    tried = answer["tried"]
    assert "threads=2" in tried["command"].split()
    assert tried["median"] is None

    other = cell(threads=2)
    other["cell"]["id"] = tried["cell"]
    results = door.stored(tmp_path / "both", cell(), other)

    tried = door.cli("show", cell()["cell"]["id"], results, "--json", cwd=tmp_path).json["tried"]
    assert tried["median"] == 51.2
    assert door.cli("show", cell()["cell"]["id"], results, cwd=tmp_path).out.count("51.2") > 3


def test_a_file_is_no_cell(tmp_path):
    (tmp_path / "mine.npz").write_bytes(b"")

    assert door.cli("show", tmp_path / "mine.npz", cwd=tmp_path).code == 2
