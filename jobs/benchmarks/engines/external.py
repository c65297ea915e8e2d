"""Engines that are programs: run them, keep what they said word for word, and find their figures in it."""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from jobs.benchmarks.engines import engine as engines
from jobs.benchmarks.engines.engine import Order, Outcome
from jobs.errors import EngineError
from jobs.fork_server import die_with_parent
from jobs.system import files, programs

_TAIL_CHARACTERS = 300
# C's printf of what is no number; JSON has no word for it.
_NO_NUMBER = re.compile(r"(?<=[:\[,\s])[+-]?(?:nan|inf(?:inity)?)(?=[\s,\]}])", re.IGNORECASE)


def run(engine: ModuleType, raw: Path | None, order: Order) -> Outcome:
    """Have a program do what is asked; `engine` is the module of its command and answer, `raw` keeps its words."""
    command = engine.command(order)
    before = time.perf_counter()
    answer = said(command, order.file.parent, raw)
    return believed(engine, answer, order, time.perf_counter() - before)


def believed(engine: ModuleType, answer: str, order: Order, elapsed_s: float) -> Outcome:
    """Read the answer of a program; raises EngineError where it is not whole or contradicts itself."""
    try:
        return engines.believe(engine.outcome(answer, order), order, elapsed_s)
    except EngineError as error:
        program = engine.__name__.rpartition(".")[2]
        raise failure(program, f"is not to be believed: {error}", answer) from error


def said(command: Sequence[str], folder: Path, raw: Path | None) -> str:
    """Run a program in a folder and return what it printed; raises EngineError if it fails; `raw` keeps its words."""
    try:
        done = programs.run(command, cwd=folder, preexec_fn=die_with_parent)  # else it would go on to use the storage
    except OSError as error:
        raise EngineError(f"{command[0]} cannot be started: {error.strerror}") from error
    words = f"$ {shlex.join(command)}\n{done.stdout}\n--- standard error, exit code {done.returncode}\n{done.stderr}"
    if raw is not None:
        with suppress(OSError):  # a full disk takes the words away, not the run
            files.write(raw, words)
    if done.returncode:
        raise failure(command[0], f"ended with exit code {done.returncode}", done.stderr.strip() or done.stdout)
    return done.stdout


def failure(program: str, what: str, text: str) -> EngineError:
    """Return an error that ends in the last words of a program; the log of the run gets more of them."""
    print(text[-10 * _TAIL_CHARACTERS :], file=sys.stderr)
    last = " ".join(text[-_TAIL_CHARACTERS:].split())
    return EngineError(f"{program} {what}: …{last}" if last else f"{program} {what}, and said nothing")


def documents(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects in a text from the outside, whatever stands between them; what is no number is None."""
    decoder = json.JSONDecoder(parse_constant=lambda _: None)
    place, cleaned = 0, _NO_NUMBER.sub("null", text)
    while (place := cleaned.find("{", place)) >= 0:
        start, place = place, place + 1
        with suppress(ValueError, RecursionError):
            value, place = decoder.raw_decode(cleaned, start)
            yield value


def number(node: Mapping[str, Any], key: str) -> float:
    """Return a figure of a program's answer; raises EngineError: it is missing, or no number."""
    value = node.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < math.inf:
        raise EngineError(f"its answer has no number {key}: {value!r}"[:_TAIL_CHARACTERS])
    return value
