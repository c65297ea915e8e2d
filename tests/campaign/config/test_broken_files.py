"""What is wrong with a file of the user's own configuration is said with its name, and nothing in it is run."""

from pathlib import Path

import pytest

from campaign.config.collect import collect_points
from campaign.errors import UsageError

_BEGIN = "defaults: [none, _self_]\nname: mine\n"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("name: [broken\n", "site/mine.yaml, line 2: expected ',' or ']'", "must be YAML"),
        ("name: a\n\tb: c\n", "site/mine.yaml, line 2: found character", "must be YAML"),
        ("name: a\nname: b\n", "site/mine.yaml, line 2: found duplicate key", "must be YAML"),
        ("name: a\0b\n", "mine.yaml", "must be YAML"),
        ("name: !!python/object/apply:os.mkdir [TRACE]\n", "line 1: could not determine a constructor", "must be YAML"),
        (b"name: \xff\n", "is not UTF-8", "UTF-8"),
        ("- a\n", "site=['a'] is no choice, and no mapping", "name a key"),
        ("hello\n", "unknown key 'site.hello'", "site."),
        ("", "site.spread_max is missing", "defaults: [OTHER, _self_]"),
        ("defaults: [mine, _self_]\n", "nested too deeply", "names the file itself"),
        ("a: " + "[" * 3000, "nested too deeply", "defaults list"),
        ("defaults: 5\n", "defaults must be a list", "help keys"),
        ("defaults: [nope, _self_]\n", "site: no choice 'nope'", ""),
        (f"{_BEGIN}storages: [a]\n", "Cannot merge DictConfig with ListConfig", "help keys"),
        (
            f"{_BEGIN}partition: ${{site.account}}\naccount: ${{site.partition}}\n",
            "Recursive interpolation",
            "help keys",
        ),
        (f"{_BEGIN}partition: ${{oc.env:NOT_THERE}}\n", "'NOT_THERE' not found", "help keys"),
        (f"{_BEGIN}partitoin: gpu\n", "unknown key 'site.partitoin'", "did you mean 'site.partition'?"),
    ],
)
def test_a_broken_file_is_refused_with_what_is_wrong(text, message, hint, tmp_path):
    (tmp_path / "site").mkdir()
    file = tmp_path / "site" / "mine.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.replace("TRACE", str(tmp_path / "trace")).encode())

    with pytest.raises(UsageError) as caught:
        collect_points(["--config-dir", str(tmp_path), "site=mine"])

    assert message in caught.value.message
    assert hint in caught.value.hint
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("/nowhere")], ids=["folder", "dangling"])
def test_what_is_no_file_is_no_choice(make, tmp_path):
    (tmp_path / "site").mkdir()
    make(tmp_path / "site" / "mine.yaml")

    with pytest.raises(UsageError, match="site: no choice 'mine'"):
        collect_points(["--config-dir", str(tmp_path), "site=mine"])


@pytest.mark.parametrize("name", ["a b", "it's", "back\\slash", "komma,", "${x}"])
def test_a_folder_may_have_any_name(name, tmp_path):
    (tmp_path / name / "site").mkdir(parents=True)
    (tmp_path / name / "site" / "mine.yaml").write_text(_BEGIN)

    (point,) = collect_points(["--config-dir", str(tmp_path / name), "site=mine"])

    assert point["site"]["name"] == "mine"


def test_a_shell_completes_groups_and_choices(monkeypatch, capsys):
    monkeypatch.setenv("COMP_LINE", "tfio-campaign threads=1 storage=l")

    assert collect_points(["-sc", "query=bash"]) is None
    assert capsys.readouterr().out.split() == ["storage=local", "storage=lustre"]
