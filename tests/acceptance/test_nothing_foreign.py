"""Nothing foreign is touched: files of the user and of others stay, and what others wrote is data, never a deed."""

from __future__ import annotations

import csv
import fcntl
import os
import re
import shlex
import shutil
import subprocess
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from jobs.burst_buffer import BurstBuffer
from jobs.cold import cold_files
from jobs.profiler import Profile
from tests.acceptance import door

NOBODY, MEMORY = 65534, Path("/dev/shm")  # noqa: S108 - of what lies in memory the kernel counts no device
ORIGINALS = MEMORY / f"tfio-foreign-{os.getpid()}"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="giving files to another user needs root")
# A data set, and a file that is read at random as if it were the set's: all kinds of data without TensorFlow.
READS = ["benchmark=baseline", "benchmark.access=random_read", "benchmark.file_mb=4", "benchmark.transfer_mib=1"]
RANDOM_READS = (*READS, "benchmark.engine=builtin", "benchmark.seconds_max=1", "cluster=local", *door.TINY, "runs=2")


def looks(folder: Path) -> dict[str, tuple]:
    """Return what each path below a folder looks like: mode, owner, times, and content or target."""
    found = {}
    for path in [folder, *folder.rglob("*")]:
        status = path.lstat()
        content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else b""
        facts = (status.st_mode, status.st_uid, status.st_mtime_ns, status.st_ctime_ns, content)
        found[str(path.relative_to(folder))] = facts
    return found


def copy_in(source: Path, root: Path) -> Path:
    """Copy files to a faster storage below `root` by `stage`; returns the folder of the plan."""
    with Profile("counters", only=[source]) as seen:
        for path in sorted(source.iterdir()):
            path.read_bytes()
    home, profile = root.parent / "plan", root.parent / "window.npz"
    seen.save(profile)
    plan = ("plan", profile, "--data", source, "--fast", root, "--out", home)
    for words in (plan, ("apply", home, "--rule", "all", "--yes")):
        done = door.cli("stage", *words, cwd=root.parent)
        assert done.code == 0, done.err
    return home


@pytest.fixture(scope="module")
def all_made(tmp_path_factory):
    """The root of a storage on which all kinds of folders were made: data set, baseline, copies, snapshots."""
    root = tmp_path_factory.mktemp("made") / "data"
    done = door.cli(*RANDOM_READS, cwd=root.parent)
    assert done.code == 0, done.err
    (root / "checkpoints").mkdir()
    with closing(BurstBuffer(root / "checkpoints" / "fast-7", root / "checkpoints" / "slow-7")) as buffer:
        buffer.save(1, lambda folder: Path(folder, "weights").write_bytes(b"w" * 1000))
        assert buffer.wait_until_drained(60)
    ORIGINALS.mkdir()
    for number in range(3):
        (ORIGINALS / f"{number}.bin").write_bytes(bytes([number]) * 20_000)
    copy_in(ORIGINALS, root)
    yield root
    shutil.rmtree(ORIGINALS)


@pytest.fixture
def made(all_made, tmp_path):
    """A copy of the root with all kinds of folders; returns the folder of each kind."""
    root = tmp_path / "data"
    shutil.copytree(all_made, root, symlinks=True)
    (dataset,), (copies,) = root.glob("datasets/*"), root.glob("staged/[!.]*")
    snapshots = root / "checkpoints" / "slow-7"
    return {"data set": dataset, "baseline": root / "baseline", "staged copies": copies, "snapshots": snapshots}


def test_clean_lists_all_that_was_made_on_the_storage_of_its_words_and_removes_nothing(made, cli, tmp_path):
    root = (tmp_path / "data").rename(tmp_path / "moved")
    before = looks(root)

    listed = {each["path"]: each for each in cli("clean", "--json", f"storage.root={root}").json}

    kinds = {str(root / path.relative_to(tmp_path / "data")): kind for kind, path in made.items()}
    kinds[str(root / "checkpoints" / "fast-7")] = "snapshots"
    assert {path: each["kind"] for path, each in listed.items()} == kinds
    for path, each in listed.items():
        sizes = [file.stat().st_size for file in Path(path).rglob("*") if file.is_file()]
        assert (each["bytes"], each["files"], each["removed"]) == (sum(sizes), len(sizes), False)
        assert 0 <= each["age_s"] < 3600
    assert looks(root) == before
    assert cli("clean", "--json").json == []


@pytest.mark.parametrize("kinds", [("data set", "snapshots"), ("baseline", "staged copies")])
def test_clean_removes_what_is_named_and_nothing_beside_it(kinds, made, cli, tmp_path):
    before, originals = looks(tmp_path / "data"), looks(ORIGINALS)
    names = {"data set": "demo-", "snapshots": made["snapshots"]}

    assert cli("clean", "--yes", *(names.get(kind, made[kind].name) for kind in kinds)).code == 0

    gone = before.keys() - looks(tmp_path / "data").keys()
    doomed = [made[kind].relative_to(tmp_path / "data") for kind in kinds]
    assert gone == {path for path in before if any(Path(path).is_relative_to(each) for each in doomed)}
    assert looks(ORIGINALS) == originals


@pytest.mark.parametrize("words", [["--yes", "demo-", "none"], ["--yes", "s"], ["demo-"]])
def test_a_word_that_names_no_folder_or_that_nobody_confirms_removes_none(words, made, start, tmp_path):
    (made["snapshots"].parent / "fast-7").rename(made["snapshots"].parent / "slow-8")  # two begin with s
    before = looks(tmp_path / "data")

    done = door.end(start("clean", *words))  # it has no terminal

    assert (done.code, door.is_one_cure(done.err)) == (2, True)
    assert looks(tmp_path / "data") == before


@pytest.mark.parametrize(("answer", "code"), [("yes", 0), ("no", 1)])
def test_clean_asks_on_the_terminal(answer, code, made, tmp_path):
    command = shlex.join(door.words_of("campaign", "clean", "demo-"))
    typed = subprocess.run(["script", "-qec", command, "/dev/null"], cwd=tmp_path, env=door.environment(),
                           input=f"{answer}\n", text=True, capture_output=True, check=False)  # fmt: skip

    assert (typed.returncode, made["data set"].exists()) == (code, answer == "no"), typed.stdout


@root_only
def test_what_is_not_ours_is_neither_listed_nor_removed(made, cli, tmp_path):
    for marker in made["baseline"].glob(".tfio-baseline"):
        marker.unlink()
    (made["staged copies"] / ".tfio-staged").rename(tmp_path / "marker")
    (made["staged copies"] / ".tfio-staged").symlink_to(tmp_path / "marker")
    made["data set"].rename(tmp_path / "elsewhere")
    made["data set"].symlink_to(tmp_path / "elsewhere")
    os.chown(made["snapshots"], NOBODY, NOBODY)
    before = looks(tmp_path)

    assert [Path(each["path"]).name for each in cli("clean", "--json").json] == ["fast-7"]
    for path in made.values():
        named = cli("clean", "--yes", path)
        assert (named.code, door.is_one_cure(named.err)) == (2, True)
    assert looks(tmp_path) == before


@pytest.mark.parametrize("in_data", ["class_000/mine.jpg", "link.jpg"])
def test_a_folder_with_a_file_of_somebody_is_left(in_data, made, cli, tmp_path):
    names = {"data set": in_data, "baseline": "read-5.txt", "snapshots": "thesis", "staged copies": "mine"}
    files = [made[kind] / name for kind, name in names.items()]
    for file in files:
        file.symlink_to(tmp_path) if file.name == "link.jpg" else file.write_text("years of work")

    done = cli("clean", "--yes", *made.values())

    assert (done.code, in_data in done.err) == (1, True)
    assert all(str(folder) in done.err for folder in made.values())
    for file in files:
        assert file.is_symlink() or file.read_text() == "years of work"
    assert (made["data set"] / "manifest.json").exists()


@pytest.mark.parametrize("kinds", [["data set", "baseline", "snapshots"], []], ids=["folders", "storage"])
def test_what_somebody_has_locked_is_left(kinds, made, cli, tmp_path):
    """A run locks the storage; who makes a data set or saves snapshots locks the folder."""
    (tmp_path / "data" / ".tfio-campaign.lock").touch()
    doomed = [made[kind] for kind in kinds or made]
    locks = [lock for folder in doomed for lock in folder.rglob(".*lock")] if kinds else [*tmp_path.glob("data/.*lock")]
    held = [lock.open() for lock in locks]
    for file in held:
        fcntl.flock(file, fcntl.LOCK_EX)
    before = looks(tmp_path / "data")

    done = cli("clean", "--yes", *doomed)
    for file in held:
        file.close()

    assert len(held) >= max(1, len(kinds))
    assert done.code == 1
    assert all(str(folder) in done.err for folder in doomed)
    assert looks(tmp_path / "data") == before
    assert cli("clean", "--yes", *doomed).code == 0
    assert not any(folder.exists() for folder in doomed)


@root_only
def test_a_removal_that_failed_half_way_leaves_what_is_known_again(made, cli):
    busy = made["data set"] / "class_001"
    subprocess.run(["mount", "--bind", busy, busy], check=True)
    try:
        assert cli("clean", "--yes", "demo-").code == 1
    finally:
        subprocess.run(["umount", busy], check=True)

    assert not (made["data set"] / "manifest.json").exists()
    assert str(made["data set"]) in {each["path"] for each in cli("clean", "--json").json}
    assert cli("clean", "--yes", "demo-").code == 0
    assert not made["data set"].exists()


def test_undo_removes_a_copy_only_where_its_original_is_still_there_unchanged(cli, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    for number in range(3):
        (source / f"{number}.bin").write_bytes(bytes([number]) * 20_000)
    (tmp_path / "fast").mkdir()
    with cold_files(source):
        home = copy_in(source, tmp_path / "fast")
    (copies,) = {path.parent for path in tmp_path.glob("fast/**/*.bin")}
    assert {path.name: path.read_bytes() for path in copies.glob("*.bin")} == door.files(source)
    (source / "0.bin").unlink()
    (source / "1.bin").write_bytes(b"another")
    (copies / "mine.txt").write_text("mine")

    done = cli("stage", "undo", home)

    left = {path.name: path.read_bytes() for path in copies.glob("[!.]*")}
    assert left == {"0.bin": bytes(20_000), "1.bin": b"\1" * 20_000, "mine.txt": b"mine"}
    assert all(str(copies / name) in done.out + done.err for name in left)
    assert not (home / "all.json").exists()


@root_only
@pytest.mark.parametrize("verb", [["apply", "--rule", "all", "--yes"], ["undo"]])
@pytest.mark.parametrize("given", [True, False], ids=["of another user", "leads elsewhere"])
def test_a_plan_that_another_user_wrote_or_that_leads_elsewhere_is_not_followed(given, verb, all_made, cli, tmp_path):
    home, fast = tmp_path / "plan", tmp_path / "fast"
    shutil.copytree(all_made.parent / "plan", home)
    text = (home / "plan.json").read_text().replace(str(all_made), str(fast))
    (home / "plan.json").write_text(text if given else text.replace('"0.bin"', '"../../../../.bashrc"'))
    (tmp_path / ".bashrc").write_text("mine")
    if given:
        os.chown(home / "plan.json", NOBODY, NOBODY)
    fast.mkdir()

    done = cli("stage", verb[0], home, *verb[1:])

    assert (done.code, door.is_one_cure(done.err)) == (3, True)
    assert [*fast.iterdir()] == []
    assert (tmp_path / ".bashrc").read_text() == "mine"


@pytest.fixture(scope="module")
def of_own_images(tmp_path_factory):
    """A campaign of a user with secrets on own images, which are the root of a storage; and what they were before."""
    home, secrets = tmp_path_factory.mktemp("own"), ("SECRETKEY", "SECRETTOKEN", "SECRETACCOUNT")
    images = home / "images"
    for number in range(24):
        file = images / f"class_{number % 3}" / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(number).integers(0, 255, (64, 64, 3), np.uint8)
        Image.fromarray(noise).save(file)
    before = looks(images)
    words = [word for word in door.TINY if not word.startswith(("dataset.", "storage.exclusive"))]
    own = ("dataset=folder", f"dataset.path={images}", f"storage.root={images}", "site.account=${oc.env:ACCOUNT}")
    environment = dict(zip(("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "ACCOUNT"), secrets, strict=True))
    done = door.cli(*words, *own, "cluster=local", cwd=home, AWS_ACCESS_KEY_ID="SECRETID", **environment)
    assert done.code == 0, done.err
    return home, before, done


def test_own_images_are_unchanged_after_a_campaign_on_them(of_own_images):
    home, before, _ = of_own_images

    (record,) = door.records(home / "results")
    assert (record["dataset"]["path"], record["dataset"]["files"]) == (str(home / "images"), 24)
    assert looks(home / "images") == before
    assert {path.name for path in home.iterdir()} == {"images", "results"}


def test_no_secret_is_in_what_is_written_or_said(of_own_images):
    home, _, done = of_own_images

    written = {**door.files(home / "results"), "said": (done.out + done.err).encode()}
    assert any("work" in name for name in written)
    assert [name for name, content in written.items() if b"SECRET" in content] == []


@root_only
@pytest.mark.parametrize("whole", [True, False])
def test_a_data_set_of_another_user_is_read_where_it_is_or_left_alone(whole, all_made, cli, scratch):
    """Where it is whole it is read; where it is not, an own one is made elsewhere. Nothing is ever written to it."""
    theirs = scratch / "datasets"
    shutil.copytree(all_made / "datasets", theirs)
    if not whole:
        image = min(theirs.rglob("*.jpg"))
        image.unlink()
        image.symlink_to(scratch)
    for path in (theirs, *theirs.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    before = looks(theirs)

    done = cli(*RANDOM_READS, f"storage.root={scratch}", f"campaign_dir={scratch}/results")

    assert done.code == 0, done.err
    (record,) = door.records(scratch / "results")
    assert Path(record["dataset"]["path"]).is_relative_to(theirs) is whole
    assert record["dataset"]["checksum"] == door.records(all_made.parent / "results")[0]["dataset"]["checksum"]
    assert looks(theirs) == before


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["storage.root=/no/such/folder"], 3),
        (["threads=1", "storage=hdd"], 2),
        (["benchmark=alexnet", "checkpoint=local", "checkpoint.every=2", "checkpoint.root=/no/such/folder"], 3),
        (["benchmark=alexnet", "accelerator=gpu"], 3),
        (["campaign_dir=taken"], 2),
        (["report", "taken"], 2),
        (["stage", "undo", "taken"], 2),
    ],
)
def test_a_refused_command_leaves_nothing(words, code, cli, tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.txt").write_text("years of work")
    before = looks(tmp_path / "taken")

    grid = [] if words[0] in ("report", "stage") else [*door.TINY, "cluster=local"]
    done = cli(*words, *grid, CUDA_VISIBLE_DEVICES="-1")

    assert (done.code, door.is_one_cure(done.err)) == (code, True), done.err
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    assert looks(tmp_path / "taken") == before


@root_only
@pytest.mark.parametrize(("place", "code"), [("datasets", 0), ("tfio-root", 3)])
def test_a_link_in_the_place_of_a_folder_of_ours_is_not_followed(place, code, scratch, tmp_path, stranger):
    """Another user has made it where all may write; what is in its way elsewhere has no other place."""
    (tmp_path / "precious").mkdir()
    stranger(os.symlink, tmp_path / "precious", scratch / place)

    done = door.cli(*RANDOM_READS, f"storage.root={scratch}", cwd=tmp_path)

    assert [*(tmp_path / "precious").iterdir()] == []
    assert done.code == code, done.err
    assert code == 0 or (str(scratch / place) in done.err and door.is_one_cure(done.err))


@pytest.mark.parametrize("name", ["figures", "tables"])
def test_a_report_is_not_written_through_a_link(name, cli, tmp_path):
    results = door.stored(tmp_path / "results", door.record(100.0, 101.0))
    (tmp_path / "precious").mkdir()
    (results / name).symlink_to(tmp_path / "precious")

    done = cli("report")

    assert (done.code, str(results / name) in done.err, door.is_one_cure(done.err)) == (2, True, True)
    assert [*(tmp_path / "precious").iterdir()] == []


def test_a_record_in_a_folder_that_is_a_link_is_named_and_not_counted(cli, tmp_path):
    elsewhere = door.stored(tmp_path / "elsewhere", door.record(7.0, 7.0, threads=8))
    results = door.stored(tmp_path / "results", door.record(100.0, 101.0))
    (results / "records" / "linked").symlink_to(next(elsewhere.glob("records/*")))

    done = cli("report")

    assert (done.code, "linked" in done.err) == (1, True)
    assert set(door.table(results, "medians")["threads"]) == {4}


ESCAPE, FORMULA, TAG = "\x1b[2J\x1b]0;x\x07", "=1+cmd|' /c calc'!A1", "<script>alert(1)</script>"
SHELL = "x'; touch PWNED; $(touch PWNED) `touch PWNED` \"| touch PWNED"
LINES = "".join(f"a{end}FORGED" for end in "\n\r\v\f\x1c\x85\u2028") + "|`c`\ud800"
ODD = (SHELL, ESCAPE, FORMULA, TAG, LINES, "[/red] $\\frac{", "@x", "\t=1")


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What each verb says of records in which another user wrote odd texts wherever a text can stand; the folder."""
    home = tmp_path_factory.mktemp("odd")
    made = []
    for number, text in enumerate(ODD):
        run = door.run(3, 9.0, status="failed", end={"code": "no_data", "words": text}, log=text, log_tail=text)
        each = door.record(100.0, 101.0, run, threads=2, **({"storage__name": text} if text.isprintable() else {}))
        each["cell"]["id"] = f"micro-odd-{number}"
        each["dataset"]["path"] = each["provenance"]["host"] = text
        each["provenance"]["versions"] = {"tensorflow": text}
        each["campaign"]["words"] = ["--config-dir", "/theirs", text]
        made.append(each)
    results = door.stored(home / "results", door.record(1.0, 1.0), *made)
    broken = results / "records" / "broken\x1b[2J\nFORGED"
    broken.mkdir()
    (broken / "record.json").write_text("{")
    door.stored(home / "other", door.record(2.0, 2.0), *made)
    commands = {"show": ("micro-odd-0",), "status": (), "report": (), "compare": ("results", "other"), "clean": ()}
    said = {verb: door.cli(verb, *words, cwd=home) for verb, words in commands.items()}
    words = ("results", "--junit", home / "junit.xml")
    said |= {"junit": door.cli(*words, program="analysis", cwd=home)}
    said |= {f"show {n}": door.cli("show", f"micro-odd-{n}", cwd=home) for n in (1, 4)}
    return home, said


def test_nothing_in_a_record_is_run(told):
    home, said = told

    assert {verb: done.code for verb, done in said.items()} == {
        "show": 0, "show 1": 0, "show 4": 0, "clean": 0, "status": 1, "report": 1, "junit": 1, "compare": 2,
    }  # fmt: skip
    assert not [*home.rglob("PWNED")]
    assert not any("/theirs" in done.out + done.err for done in said.values())


class Evil:
    """A pickle of this leaves a file where it is loaded."""

    def __reduce__(self):
        return os.system, ("touch PWNED",)


def test_a_pickle_in_a_profile_is_not_loaded(all_made, cli, tmp_path):
    with np.load(all_made.parent / "window.npz") as profile:
        np.savez(tmp_path / "evil.npz", **dict.fromkeys(profile, np.array([Evil()], dtype=object)))

    done = cli("profile", "evil.npz", program="analysis")

    assert (done.code, door.is_one_cure(done.err)) == (2, True)
    assert {path.name for path in tmp_path.iterdir()} == {"evil.npz"}


def test_a_command_that_is_shown_for_a_strangers_cell_is_one_command_of_ours(told):
    shown = [line.partition("python -m campaign ")[2] for line in told[1]["show"].out.splitlines()]

    commands = [shlex.split(line) for line in shown if line]
    assert commands
    assert {word.partition("=")[0] for words in commands for word in words} <= {
        "benchmark", "benchmark.access", "dataset.name", "profile.posix", "storage.name", "storage.root", "threads",
    }  # fmt: skip
    assert all(sum("touch" in word for word in words) <= 2 for words in commands)


def test_a_text_of_a_record_neither_acts_on_a_terminal_nor_makes_a_line(told):
    said = {verb: done.out + done.err for verb, done in told[1].items()}

    for verb, text in said.items():
        assert not {each for each in text if not each.isprintable() and each not in "\n\N{NO-BREAK SPACE}"}, verb
        wrapped = verb == "compare"  # a table's cell, whose next line may begin with any word
        assert wrapped or not [line for line in text.splitlines() if line.strip().startswith("FORGED")], verb
        assert "Traceback" not in text, verb
    assert all("\\x1b[2J" in said[verb] for verb in ("report", "compare", "show 1"))
    assert all("broken\\x1b[2J" in told[1][verb].err for verb in ("report", "junit"))


def test_a_text_of_a_record_is_no_formula_in_a_table_and_no_tag_in_a_page(told):
    home, _ = told
    tables, pages = [*home.rglob("*.csv")], [*home.rglob("*.html"), *home.rglob("*.md")]

    assert {path.stem for path in tables} >= {"medians", "runs", "comparison"}
    found = False
    for path in tables:
        with path.open(newline="", encoding="utf-8") as file:
            cells = [cell for row in csv.reader(file) for cell in row]
        found |= any("cmd|" in cell for cell in cells)
        assert not [cell for cell in cells if re.match(r"[=@\t\r]|[+-](?![0-9.])", cell)], path
        assert not [cell for cell in cells if re.search("[\x00-\x08\x1b\x7f-\x9f]", cell)], path
    assert found
    assert "&lt;script&gt;alert(1)" in (home / "results" / "report.html").read_text("utf-8")
    for path in pages:
        assert not re.search("<script>alert|[\x00-\x08\x1b]", path.read_text("utf-8")), path
    assert len(ET.parse(home / "junit.xml").getroot()) > 0  # noqa: S314 - ours


def test_a_copied_campaign_folder_neither_cancels_nor_continues_the_original(start, cli, tmp_path):
    def sleepers():
        return [each.pid for each in door.processes_in(tmp_path) if each.cmdline()[:1] == ["sleep"]]

    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "a.bin").write_bytes(b"a" * 4096)
    own = ("benchmark=command", "dataset=folder", f"dataset.path={tmp_path}/own", f"storage.root={tmp_path}")
    words = (*own, "benchmark.argv=[sleep,300]", "runs=3", "storage.exclusive=none", "cluster=local")
    front = start(*words)
    door.wait(sleepers)
    (original,) = sleepers()
    shutil.copytree(tmp_path / "results", tmp_path / "copy")

    nothing = cli("cancel", "copy")
    (state,) = (each["status"] for each in door.status(tmp_path / "copy").values())
    other = start(*words, "campaign_dir=copy")
    door.wait(lambda: len(sleepers()) == 2)
    cancelled = cli("cancel", "copy")
    door.end(other)
    left = sleepers()

    assert (nothing.code, cancelled.code, left) == (0, 0, [original])
    assert state not in ("running", "done")
    assert front.poll() is None
    assert cli("cancel", "results").code == 0
    assert door.end(front).code != 0
    assert sleepers() == []


@pytest.mark.long
@root_only
def test_testbed_down_takes_away_all_of_its_own_and_nothing_else(cli, tmp_path):
    def attached():
        listed = subprocess.run(["losetup", "-lnO", "NAME,BACK-FILE"], capture_output=True, text=True, check=True)
        mounted = Path("/proc/self/mountinfo").read_text().splitlines()
        return {" ".join(line.split()) for line in listed.stdout.splitlines()}, {line.split()[4] for line in mounted}

    (tmp_path / "theirs.img").write_bytes(bytes(1 << 20))
    theirs = subprocess.run(
        ["losetup", "--show", "-f", tmp_path / "theirs.img"], capture_output=True, text=True, check=True
    )
    try:
        assert cli("testbed", "up", "storages=[ssd]", "ssd.size_gb=0.1", "--folder", "other").code == 0
        before = attached()
        assert cli("testbed", "up", "storages=[hdd]", "hdd.size_gb=0.1", "--folder", "bed").code == 0
        (tmp_path / "bed" / "thesis.txt").write_text("years of work")
        was_up = attached()
        down = cli("testbed", "down", "--folder", "bed")
        after, other = attached(), cli("testbed", "status", "--json", "--folder", "other").json
    finally:
        for folder in ("bed", "other"):
            cli("testbed", "down", "--folder", folder)
        subprocess.run(["losetup", "-d", theirs.stdout.strip()], check=True)

    assert len(was_up[0]) > len(before[0])
    assert str(tmp_path / "bed" / "hdd") in was_up[1] - before[1]
    assert (down.code, after) == (0, before)
    assert other["storages"]["ssd"]["state"] == "up"
    assert door.files(tmp_path / "bed") == {"thesis.txt": b"years of work"}
