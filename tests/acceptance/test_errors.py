"""What is wrong is said once, on stderr, with its key, a cure and an exit code, and nothing is written (52 to 62)."""

import shlex
import shutil
import subprocess

import pytest

from tests.acceptance import door

WRONG = [
    tuple(part.strip() for part in line.split("|"))
    for line in (door.STORED / "wrong_words.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
]
"""What is typed, what the error names, what the cure names."""


@pytest.fixture(scope="module")
def refused(tmp_path_factory):
    """Give each line of wrong words once, from one empty folder; returns what was said and the folder."""
    folder = tmp_path_factory.mktemp("refused")
    lines = [*dict.fromkeys(words for words, _, _ in WRONG)]
    done = door.many(*map(shlex.split, lines), cwd=folder, XDG_STATE_HOME=folder)
    return dict(zip(lines, done, strict=True)), folder


@pytest.mark.parametrize(("words", "named", "cure"), WRONG)
def test_what_is_wrong_is_named_with_its_cure(words, named, cure, refused):
    done = refused[0][words]

    error, _, hint = done.err.partition("hint: ")
    assert (done.code, done.out) == (2, ""), done.err
    assert door.is_one_cure(done.err)
    assert named in error
    assert cure in hint
    assert "SECRET" not in done.err


def test_refusals_leave_nothing_in_the_folder(refused):
    assert list(refused[1].iterdir()) == []


def test_the_last_of_two_words_counts_and_a_note_says_so(cli):
    done = cli("threads=1", "threads=2", "--dry-run", "--json")

    assert done.code == 0
    assert [cell.split("-")[3] for cell in done.json["cells"]] == ["t2"]
    assert "note: threads" in done.err


def test_the_other_programs_refuse_wrong_flags_too(tmp_path):
    meant = {"profile --jason x": "--json", "x --quite": "--quiet", "mlperf --jsn x": "--json"}
    for words, done in zip(meant, door.many(*map(str.split, meant), cwd=tmp_path, program="analysis"), strict=True):
        assert (done.code, done.out) == (2, "")
        assert door.is_one_cure(done.err)
        assert meant[words] in done.err.partition("hint: ")[2]


@pytest.fixture
def without_tensorflow(tmp_path):
    """A TensorFlow that cannot be imported; returns the variables of environment that put it first."""
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / "tensorflow.py").write_text("raise ImportError('on purpose')")
    return {"PYTHONPATH": f"{tmp_path / 'stub'}:{door.ROOT}"}


def test_without_tensorflow_only_a_benchmark_that_needs_it_is_refused(cli, tmp_path, without_tensorflow):
    needs = cli("threads=1", *door.TINY, **without_tensorflow)
    (tmp_path / "program").mkdir()
    other = ("benchmark=command", "benchmark.argv=[cat,program/a]", "cache=as_is", "campaign_dir=other", *door.SHARED)
    (tmp_path / "program" / "a").write_bytes(bytes(4096))
    measured = cli(*other, "dataset=folder", f"dataset.path={tmp_path}/program", "runs=2", **without_tensorflow)

    assert needs.code == 3
    assert door.is_one_cure(needs.err)
    assert "on purpose" in needs.err
    assert door.valid_runs(tmp_path / "results") == []
    assert measured.code == 0, measured.err
    assert [run["data_bytes"] for run in door.valid_runs(tmp_path / "other")] == [4096]


def test_the_doctor_says_that_tensorflow_is_missing(cli, without_tensorflow):
    done = cli("doctor", "cluster=local", "--json", **without_tensorflow)

    (found,) = [each for each in done.json if each["what"] == "tensorflow"]
    assert (done.code, found["passed"]) == (3, False)
    assert "on purpose" in found["message"]
    assert "pip install" in found["hint"]


def test_a_storage_that_is_not_there_is_refused_and_not_made(cli, tmp_path):
    done = cli(f"storage={tmp_path}/not-mounted")

    assert (done.code, done.out) == (3, "")
    assert door.is_one_cure(done.err)
    assert f"{tmp_path}/not-mounted" in done.err
    assert not (tmp_path / "not-mounted").exists()
    assert not list(tmp_path.glob("results/records/*"))


def test_without_slurm_nothing_is_submitted_and_this_machine_still_measures(cli, tmp_path):
    (tmp_path / "bin").mkdir()
    words = ("benchmark=command", "benchmark.argv=[cat]", "--yes")
    plain = {"PATH": tmp_path / "bin"}

    submitted = cli("cluster=slurm", *words, **plain)
    found = cli("doctor", "cluster=slurm", "--json", **plain)
    planned = cli("--dry-run", "--json", *words, **plain)

    assert (submitted.code in (3, 4), found.code, planned.code) == (True, 3, 0)
    assert door.is_one_cure(submitted.err)
    assert not list(tmp_path.glob("results/records/*"))
    assert [each["passed"] for each in found.json if each["what"] == "slurm"] == [False]
    assert len(planned.json["cells"]) == 1


JSON = {
    "": ("--dry-run threads=1,2 campaign_dir=new", "threads=0"),
    "clean": ("clean campaign_dir=a storage.root=images", "clean storage=lokal"),
    "compare": ("compare a b", "compare a none"),
    "doctor": ("doctor campaign_dir=new cluster=slurm", "doctor cluster=slrm"),
    "feed": ("feed --dry-run storage=./fast accelerator=retinanet_b200 campaign_dir=new", "feed storage=./fast"),
    "measure": ("measure images --dry-run campaign_dir=new", "measure none"),
    "reproduce": ("reproduce +size=smoke --dry-run campaign_dir=new", "reproduce +paper=fig9"),
    "show": ("show c4855 a", "show zzz a"),
    "stage plan": ("stage plan window.npz --data images --fast fast", "stage plan none --fast fast"),
    "stall": ("stall --dry-run --data images campaign_dir=new -- cat x", "stall --data images"),
    "status": ("status a", "status none"),
    "status --watch": ("status --watch a", "status --watch none"),
    "testbed": ("testbed status --folder bed", "testbed status --folder window.npz"),
}
NOT_TOLD = {"status": 1, "status --watch": 1, "testbed": 1, "compare": 2, "doctor": 3}
"""The exit codes of the answers above where it is not 0: an invalid cell, no testbed, no pair of cells, no Slurm."""


def with_flag(line, flag="--json"):
    words = line.split()
    place = words.index("--") if "--" in words else len(words)
    return [*words[:place], flag, *words[place:]]


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """Two campaigns, images and the profile of a program that read them; each verb is asked well, and twice wrongly."""
    from jobs.cold import cold_files  # noqa: PLC0415 - as a user's script does
    from jobs.profiler import Profile  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("told")
    for name in ("a", "b"):
        shutil.copytree(door.STORED / "measured", folder / name)
    for name in ("fast", "images", "bin"):  # bin: of no Slurm, on every machine
        (folder / name).mkdir()
    for number in range(10):
        (folder / "images" / f"{number}").write_bytes(bytes(20_000))
    with cold_files(folder / "images"), Profile("counters", only=[folder / "images"]) as seen:
        for path in (folder / "images").iterdir():
            path.read_bytes()
    seen.save(folder / "window.npz")
    lines = []
    for good, bad in JSON.values():
        lines += [with_flag(good), with_flag(bad), with_flag(good, "--no-such")]
    done = iter(door.many(*lines, cwd=folder, PATH=folder / "bin"))
    answers = {verb: (next(done), next(done), next(done)) for verb in JSON}
    assert not (folder / "new").exists()
    return answers


@pytest.mark.parametrize("verb", JSON)
def test_json_is_one_document_on_stdout(verb, told):
    done, _, _ = told[verb]

    assert done.code == NOT_TOLD.get(verb, 0), done.err
    assert isinstance(done.json, dict | list)
    assert "Traceback" not in done.err


@pytest.mark.parametrize("verb", JSON)
def test_an_error_is_on_stderr_alone_with_json_too(verb, told):
    for done in told[verb][1:]:
        assert (done.code, done.out) == (2, "")
        assert door.is_one_cure(done.err)
    assert "--no-such" in told[verb][2].err


def test_a_flag_may_stand_before_the_verb_and_says_the_same(tmp_path):
    shutil.copytree(door.STORED / "measured", tmp_path / "a")
    lines = [("status", "--json", "a"), ("--json", "status", "a"), ("status", "a", "--json")]

    first, *others = door.many(*lines, cwd=tmp_path)

    assert first.json["counts"] == {"done": 21, "invalid": 1}
    assert others == [first, first]


def in_shell(line, folder):
    env = door.environment(PYTHONUNBUFFERED="" if "|" in line else "1")
    return subprocess.run(["bash", "-c", line], cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("program", "words"),
    [("campaign", "help keys"), ("campaign", "status --help"), ("campaign", "threads=1 --dry-run --json"),
     ("analysis", "--help"), ("analysis", "timelog --help"), ("jobs.burst_buffer", "--help")],
)  # fmt: skip
def test_a_reader_that_ends_early_is_no_error(program, words, tmp_path):
    done = in_shell(f"{shlex.join(door.words_of(program, *words.split()))} | :; echo ${{PIPESTATUS[0]}}", tmp_path)

    assert done.stdout == "141\n"
    assert [word for word in ("Traceback", "BrokenPipe", "error") if word in done.stderr] == []


@pytest.mark.parametrize(
    ("redirection", "code"), [("> /dev/full", 3), (">&-", 0), ("2>&-", 0), ("<&-", 0), (">&- 2>&- <&-", 0)]
)
def test_streams_that_are_full_or_closed_are_met_without_a_traceback(redirection, code, tmp_path):
    words = door.words_of("campaign", "--dry-run", "threads=1", "--json")
    done = in_shell(f"{shlex.join(words)} {redirection}", tmp_path)

    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert door.is_one_cure(done.stderr) is (code == 3)
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_lists_each_cell_once_and_writes_nothing(cli, tmp_path):
    done = cli("--dry-run", "-m", "threads=1,16,16", "runs=4", "cluster=local", "--json", XDG_STATE_HOME=tmp_path)

    assert done.code == 0
    assert {cell.split("-")[3]: each["missing"] for cell, each in done.json["cells"].items()} == {"t1": 3, "t16": 3}
    assert list(tmp_path.iterdir()) == []


def test_the_plain_dry_run_has_a_line_for_each_cell(cli, tmp_path):
    done = cli("--dry-run", "threads=range(1,4)", "storage=local", f"campaign_dir={tmp_path}/new")

    assert done.code == 0
    assert [line.split()[0].split("-")[3] for line in done.out.splitlines()] == ["t1", "t2", "t3"]
    assert list(tmp_path.iterdir()) == []


DOCTOR = {"python", "records", "clock", "load", "storage", "write", "lock", "cold"}


def found_by(cli, *words):
    done = cli("doctor", "cluster=local", "benchmark=command", "benchmark.argv=[cat]", "--json", *words)
    return done.code, {each["what"]: each for each in done.json}


def test_the_doctor_finds_a_disk_fit_for_cold_runs(cli, tmp_path):
    (tmp_path / "disk").mkdir()

    code, found = found_by(cli, f"storage={tmp_path}/disk")

    assert found.keys() - {"reclaim", "tensorflow"} == DOCTOR
    assert {what for what, each in found.items() if each["passed"] is False} == set(), found
    assert code == 0
    assert all(found[what]["passed"] for what in ("python", "records", "write", "lock", "cold"))
    assert str(tmp_path) in found["storage"]["message"]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["disk"]
    assert not list((tmp_path / "disk").iterdir())


@pytest.mark.parametrize(("cache", "code", "passed"), [("cold", 3, False), ("as_is", 0, None)])
def test_the_doctor_refuses_memory_as_a_cold_storage(cache, code, passed, cli, small_disk):
    found = found_by(cli, f"storage={small_disk}", f"cache={cache}")

    assert found[0] == code, found
    assert found[1]["cold"]["passed"] is passed
    assert found[1]["cold"]["hint"]


def test_the_doctor_names_a_storage_that_is_missing(cli, tmp_path):
    code, found = found_by(cli, f"storage={tmp_path}/none")

    assert (code, found["storage"]["passed"]) == (3, False)
    assert f"{tmp_path}/none" in found["storage"]["message"]


def test_the_exit_code_says_whether_a_campaign_is_done(tmp_path):
    done = door.stored(tmp_path / "done", door.record(100.0, 101.0))
    missing = door.stored(tmp_path / "missing", door.record(100.0, 101.0))
    shutil.rmtree(missing / "records")

    assert [each.code for each in door.many(("status", done), ("status", missing), cwd=tmp_path)] == [0, 1]


def test_the_version_and_help_are_told_on_stdout(tmp_path):
    version, help_, key = door.many(["--version"], ["--help"], ["help", "threads"], cwd=tmp_path)

    assert (version.code, help_.code, key.code) == (0, 0, 0)
    assert version.out.startswith("tfio-campaign ")
    assert version.err + help_.err + key.err == ""
    assert {"status", "report", "stall", "measure", "feed"} <= {*help_.out.replace(",", " ").split()}
    assert "1 to 1,024" in key.out
