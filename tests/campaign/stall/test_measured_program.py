"""The data that nobody has named: which files of those that a program read they are."""

import sys
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from campaign import console
from campaign.config.collect import collect_points
from campaign.config.command_line import quote_literally
from campaign.errors import CampaignError, EnvironmentFaultError, UsageError
from campaign.stall import measured_program
from campaign.stall.measured_program import MeasuredProgram
from jobs.benchmarks import command
from jobs.profiler import files_seen
from jobs.profiler.hook_library import ProfilerError

SCRIPT = (
    "import sys\nfor name in sys.argv[1:]: open(name, 'rb').read()\nopen('out', 'w').write('x'); open('out').read()\n"
)


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Return a folder with images, a program beside it, an environment of Python, and be there."""
    for name in ("data/a/1.jpg", "data/b/2.jpg", "env/lib/labels.txt", "env/pyvenv.cfg", "data/site-packages/x.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * 1000)
    (tmp_path / "read.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "data"


def _settings(*argv):
    return {"cache": "cold", "benchmark": {**command.BENCHMARK.defaults["benchmark"], "argv": list(argv)}}


def _found(*names, sure=True):
    return measured_program.find_data(_settings(sys.executable, "read.py", *names), 60.0, sure=sure)


def test_data_are_what_is_read_below_no_system_folder_and_no_environment_and_not_written(data):
    names = ("data/a/1.jpg", "data/b/2.jpg", "env/lib/labels.txt", "data/site-packages/x.txt", "/etc/hostname")

    assert _found(*names) == [data / "a" / "1.jpg", data / "b" / "2.jpg"]


@pytest.mark.parametrize("name", ["/usr/share/x", "/etc/x", "/var/lib/x", "~/.config/x", "~/.local/lib/x", "/d/x.py",
                                  "/d/lib.so.1", "/d/__pycache__/x"])  # fmt: skip
def test_what_belongs_to_the_machine_is_no_data(name, monkeypatch):
    monkeypatch.setattr(Path, "is_file", lambda _: True)

    assert measured_program.select_data_files([Path(name).expanduser()]) == []


@pytest.mark.parametrize(
    "name", ["~/.cache/hub/x.arrow", "~/.keras/datasets/mnist.npz", "~/images/1.jpg", "/scratch/x"]
)
def test_what_a_user_keeps_is(name, monkeypatch):
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    path = Path(name).expanduser()

    assert measured_program.select_data_files([path]) == [path.resolve()]


def test_somebody_is_asked_and_no_is_no(data, monkeypatch):
    answers = []
    monkeypatch.setattr(console, "ask_for_yes", lambda question: answers.pop())

    answers.append(True)
    assert _found("data/a/1.jpg", sure=False) == [data / "a" / "1.jpg"]
    answers.append(False)
    with pytest.raises(CampaignError, match="nothing was measured"):
        _found("data/a/1.jpg", sure=False)
    answers.append(None)
    with pytest.raises(UsageError, match="there is no terminal to ask whether"):
        _found("data/a/1.jpg", sure=False)


def test_a_program_without_data_and_one_that_fails_are_told_apart(data):
    with pytest.raises(UsageError, match="read no files that may be data"):
        _found()
    with pytest.raises(CampaignError, match=r"the first run of the program failed: .* exit code 1: FileNotFoundError"):
        _found("no-such-file")
    with pytest.raises(UsageError, match="is replaced by the path of --data"):
        _found("{data}")


def test_where_nothing_can_be_preloaded_the_data_are_asked_for(data, monkeypatch):
    def never(_folder):
        raise ProfilerError("the profiler cannot be used: no C compiler was found")

    monkeypatch.setattr(files_seen, "recording_environment", never)

    with pytest.raises(EnvironmentFaultError) as refused:
        _found("data/a/1.jpg")
    assert refused.value.hint == "name the data of the program: --data DIR"


def test_a_program_that_takes_no_hooks_is_told(data, monkeypatch):
    monkeypatch.setattr(files_seen, "recording_environment", lambda _: {})

    with pytest.raises(UsageError, match="took no hooks"):
        _found("data/a/1.jpg")


ODD = r"""a'b"c\${d} = [e,f] {threads} \'\\"""
ARGUMENTS = st.lists(st.text("ab'\"\\${}[],=: \n~#%é", max_size=12), min_size=1, max_size=3)


@given(ARGUMENTS)
@example([ODD])
@example(["\\"])
@example(["\\'", "${a}", "\\${a}", "\\\\${a}\\"])
def test_an_argument_reaches_the_program_as_it_was_typed(arguments):
    word = f"benchmark.argv=[{','.join(map(quote_literally, arguments))}]"

    value = OverridesParser.create().parse_override(word).value()

    assert OmegaConf.to_container(OmegaConf.create({"argv": value}), resolve=True)["argv"] == arguments


def test_through_the_whole_configuration_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = MeasuredProgram(["prog", ODD], Path("/it's here"), None, r"epoch (\d+)", cold=False)

    points = collect_points(program.campaign_arguments(5, ["cluster=local"]))

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
    words = MeasuredProgram(["prog"], Path("/data"), Path("/list"), None, cold=cold).campaign_arguments(5, own)

    assert there in words
    assert not_there not in words
    assert 'dataset.list="/list"' in words
