"""The outcome of one rule, as `jobs.checks` makes it: a value within its limit, beyond it, or unknown."""

from __future__ import annotations

from typing import Any

from jobs.model.results import Check


def at_most(rule: str, observed: float | None, limit: float, message: str) -> Check:
    """Return the outcome of a rule with a largest value; None: the machine cannot tell."""
    return outcome(rule, None if observed is None else observed <= limit, observed, limit, message)


def at_least(rule: str, observed: float | None, limit: float, message: str) -> Check:
    """Return the outcome of a rule with a smallest value; None: the machine cannot tell."""
    return outcome(rule, None if observed is None else observed >= limit, observed, limit, message)


def outcome(rule: str, passed: bool | None, observed: Any, limit: Any, message: str) -> Check:  # noqa: FBT001 - a field
    """Return the outcome of a rule."""
    return {"rule": rule, "passed": passed, "observed": observed, "limit": limit, "message": message}
