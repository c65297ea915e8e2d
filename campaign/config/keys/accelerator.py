"""The group ``accelerator``: its keys and what can be meant by them."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING

from campaign.errors import UsageError
from jobs.benchmarks.registry import benchmarks, names_of
from jobs.model.conduct import Flat
from jobs.model.settings import key

NAMES = ("auto", "cpu", "gpu", "emulated")


@dataclass
class Accelerator:
    """Group ``accelerator``."""

    name: str = MISSING
    step_s: float | None = key(MISSING, 0, 3600)


def check(values: Flat) -> None:
    """Refuse an accelerator where nothing computes, and the length of a step without ``accelerator=emulated``."""
    name, step_s = values["accelerator.name"], values["accelerator.step_s"]
    if not benchmarks()[values["benchmark.name"]].computes and name != "auto":
        raise UsageError(
            f"accelerator={name}: benchmark={values['benchmark.name']} computes nothing",
            f"benchmark={' or '.join(names_of('computes'))}, or leave accelerator away",
        )
    if (step_s is None) == (name == "emulated"):
        raise UsageError(
            f"accelerator.step_s={step_s} with accelerator={name}", "it is the seconds of accelerator=emulated"
        )
