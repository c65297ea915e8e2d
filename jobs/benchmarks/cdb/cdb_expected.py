"""What a run of ``climate`` was to do, beside what it did: by rule, what was expected and what was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from jobs.benchmarks.cdb.cdb_rules import TRAIN, Phase, Rules
from jobs.benchmarks.nersc.nersc_run import as_predicted
from jobs.model.results import Expectation
from jobs.ranks.training_meetings import alike


def of_rank(
    rules: Rules, found: Mapping[Phase, int], asked: Mapping[str, int], most_asked: int, size: tuple[int, int]
) -> dict[str, Expectation]:
    """Hold what one rank did against it: images consumed and asked for by phase; bytes, found and predicted."""
    train, ahead = rules.images[TRAIN], asked[TRAIN] - found[TRAIN]
    message = f"{ahead} images of train were read ahead and thrown away, of at most {most_asked - train}"
    fine = train <= asked[TRAIN] <= most_asked
    return {
        **as_predicted("images consumed", (found, rules.images), size),
        "ahead_as_predicted": {"expected": True, "found": fine, "message": message},
    }


def over_ranks(rules: Rules, told: Sequence[Mapping[str, Any]]) -> dict[str, Expectation]:
    """Hold against each other what the ranks tell: ``steps``, ``delivered`` (files of train, in order), ``weights``."""
    fault = every_sample_once(rules, [each["delivered"] for each in told])
    fine = "no file of train came twice in a pass over them, and none was left out"
    return alike(told, [rules.epochs * rules.steps] * rules.ranks, fault, fine)


def every_sample_once(rules: Rules, delivered: Sequence[Sequence[int]]) -> str:
    """Say what is wrong in what the ranks consumed; empty where each pass has each file of its shares once over all.

    A pass that the run did not come to the end of has none twice.
    """
    whole = rules.batches(TRAIN) * rules.batch_size
    for number in range(rules.epochs):
        found = Counter(file for files in delivered for file in files[number * whole : (number + 1) * whole])
        wanted = [replace(rules, rank=rank).order(TRAIN, number) for rank in range(rules.ranks)]
        if twice := [file for file, count in found.items() if count > 1]:
            return f"file {twice[0]} of train came {found[twice[0]]} times in pass {number}"
        if other := found.keys() - {file for files in wanted for file in files}:
            return f"file {min(other)} of train came in pass {number}, and is of no rank's share"
        missing = {file for files in wanted for file in files} - found.keys()
        if missing and all(len(files) >= (number + 1) * whole for files in delivered):
            return f"file {min(missing)} of train did not come in pass {number}"
    return ""
