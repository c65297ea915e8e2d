"""What fio, plain loops and this tool tell under the same disturbances, and by how much their numbers are wrong."""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tests.lies import setup, workspace
from tests.lies.disturbances import rows
from tests.lies.disturbances.disturbance import ALL, DISK, Disturbance, Place, Start
from tests.lies.lie import MissingError, NotStagedError, confirmed
from tests.lies.workspace import Workspace

OURS = "this tool"
_Done = subprocess.CompletedProcess[str]
TEN = (
    "seeks", "flushes", "io_limit", "slow_reads", "scanner", "other_queue", "allocator", "stops", "one_core", "loader",
)  # fmt: skip
_TIMES = 3
_HEAD = """
## The same told to other tools

fio and two plain loops of ten lines (`tests/lies/tools/`) promise to measure, not to notice who disturbs them: that
they say nothing is no fault of theirs, but it is what their numbers are to be read with. fio prints the requests and
the busy time of the whole device beside its own: who compares them can see a neighbour. Each measures the same files
three times without the disturbance and three times with it, after a warm-up that does not count; the share is by how
much its median is wrong then, with what it complained of. Of this tool it is the number that stands in its record, and
its answer in the table above. The first row has no disturbance: it shows how far the method is off.
"""


@dataclass(frozen=True)
class Told:
    """What a tool told: its number, of whatever unit, and what it complained of."""

    number: float
    complaint: str = ""


@dataclass(frozen=True)
class Compared:
    """What each tool told under one disturbance; `missing` says why it could not be staged."""

    disturbance: Disturbance
    errors: Mapping[str, float]  # of each tool: its number under the disturbance over that without, less 1
    complaints: dict[str, str]
    missing: str = ""


def _repeated(program: Callable[[], _Done]) -> list[_Done]:
    """Run a program; the first time is the warm-up of inodes and of the program itself, as this tool has one."""
    return [program() for _ in range(1 + _TIMES)][1:]


def _fio(space: Workspace, place: Place, start: Start) -> Told:
    setup.need("fio")
    read = ("fio", "--name=read", f"--opendir={place.paths[0].parent}", "--rw=read", "--bs=4k", "--ioengine=psync")
    words = (*read, "--invalidate=1", "--readonly", "--output-format=json")
    done = _repeated(lambda: space.program(*words, inside=start.inside, **start.environment))
    jobs = [json.loads(each.stdout[each.stdout.index("{") :])["jobs"][0] for each in done]
    complaint = next((each.stderr.strip() for each in done if each.stderr), "")
    return Told(statistics.median(job["read"]["bw_bytes"] for job in jobs), complaint)


def _loop(name: str) -> Callable[[Workspace, Place, Start], Told]:
    def told(space: Workspace, place: Place, start: Start) -> Told:
        words = (sys.executable, "-m", f"tests.lies.tools.{name}", str(place.paths[0].parent))
        done = _repeated(lambda: space.program(*words, inside=start.inside, **start.environment))
        return Told(statistics.median(float(each.stdout.split()[-1]) for each in done))

    return told


def _ours(space: Workspace, place: Place, start: Start) -> Told:
    shutil.rmtree(space.folder / "results", ignore_errors=True)
    words = (*rows.QUIET, f"runs={_TIMES + 1}")
    answer = space.campaign(place.paths[0].parent, *words, inside=start.inside, **start.environment)
    if not space.measured():
        raise NotStagedError("\n".join(answer.remarks))
    return Told(statistics.median(run["images_per_s"] for run in space.measured()))


TOOLS: Mapping[str, Callable[[Workspace, Place, Start], Told]] = {
    "fio": _fio,
    "a tf.data loop": _loop("tf_data_loop"),
    "a loop of threads": _loop("thread_loop"),
    OURS: _ours,
}


def _nothing(_: Place) -> Iterator[Start]:
    yield Start()


def compared() -> Iterator[Compared]:
    """Let each tool measure without and then under each disturbance, one of which is none: so far do they scatter."""
    disturbances = [
        Disturbance("nothing", "Nothing: each measures once more.", DISK, (), _nothing),
        *(ALL[name] for name in TEN),
    ]
    for device in dict.fromkeys(each.device for each in disturbances):
        with workspace.opened() as space:
            place = rows.place_of(space, device)
            for disturbance in (each for each in disturbances if each.device == device):
                yield _disturbed(space, place, disturbance)


def compare(disturbance: Disturbance, before: Mapping[str, Told], then: Mapping[str, Told]) -> Compared:
    """Hold what each tool told under a disturbance against what it told before."""
    errors = {name: each.number / before[name].number - 1 for name, each in then.items()}
    return Compared(disturbance, errors, {name: each.complaint for name, each in then.items()})


def _disturbed(space: Workspace, place: Place, disturbance: Disturbance) -> Compared:
    try:
        before = _told(space, place, Start())  # just before: a machine that is shared is another one in ten minutes
        with contextlib.ExitStack() as stack, disturbance.around(replace(place, stack=stack)) as start:
            then = _told(space, place, start)
            confirmed(*start.happened())
    except (MissingError, NotStagedError) as error:
        return Compared(disturbance, {}, {}, str(error))
    return compare(disturbance, before, then)


def _told(space: Workspace, place: Place, start: Start) -> dict[str, Told]:
    return {name: tool(space, place, start) for name, tool in TOOLS.items()}


def line(each: Compared) -> str:
    """Return the row for a terminal."""
    told = ", ".join(f"{tool} {error:+.0%} {each.complaints[tool]}".strip() for tool, error in each.errors.items())
    return f"{each.disturbance.name}: {each.missing or told}"


def page(compared: Sequence[Compared], answers: Mapping[str, str]) -> str:
    """Return the part of docs/proofs.md; `answers` are those of this tool to the same lies, by name."""
    head = f"| {' | '.join(['', *TOOLS])} |"
    return "\n".join([_HEAD, head, "| --- " * (len(TOOLS) + 1) + "|", *(_row(each, answers) for each in compared)])


def _row(each: Compared, answers: Mapping[str, str]) -> str:
    sentence = each.disturbance.sentence
    if each.missing:
        return f"| {sentence} | not staged: {each.missing} {'| ' * len(TOOLS)}|"
    words = each.complaints | {OURS: answers.get(each.disturbance.name, "")}
    cells = [f"{each.errors[tool]:+.0%}" + (f": {words[tool]}" if words[tool] else "") for tool in TOOLS]
    return f"| {' | '.join([sentence, *cells])} |"
