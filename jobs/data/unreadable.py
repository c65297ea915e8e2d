"""Files that do not load: how many a run dropped, which they are and what TensorFlow reports of them."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.data import pipeline
from jobs.model.settings import Settings
from jobs.objects.source import Source

_NAMED_FILES = 20  # a record names this many unreadable files; the count is always whole


def dropped(  # noqa: PLR0913 - what a pipeline was made of, and how its run ended
    names: Sequence[str],
    delivered: Sequence[int],
    settings: Settings,
    source: Source | None = None,
    *,
    exhausted: bool,
    whole_batches: bool = False,
) -> tuple[int, list[dict[str, str]]]:
    """Count and name the files that the pipeline dropped, after the clock has stopped.

    The shuffled order is seeded, so the files requested before the last one delivered are known. Those among them
    that did not arrive are loaded once more, alone: one that loads was only still under way. A run that `exhausted`
    the list asked for every file, and one that is missing was dropped, even where it loads now; unless only
    `whole_batches` are delivered, for then it may have been in the rest.
    """
    seen = set(delivered)
    if len(seen) == len(names):
        return 0, []
    order = pipeline.order(names, settings["seed"])
    last = len(order) if exhausted else 1 + max((place for place, i in enumerate(order) if i in seen), default=-1)
    complaints = {}
    for index in order[:last]:
        if index not in seen:
            complaint = pipeline.why_unreadable(names[index], settings["benchmark"], source)
            if complaint is not None or (exhausted and not whole_batches):
                complaints[names[index]] = complaint or "dropped, though it loads now"
    named = [{"file": file, "error": error} for file, error in list(complaints.items())[:_NAMED_FILES]]
    return len(complaints), named


def first_complaint(names: Sequence[str], settings: Settings, source: Source | None = None) -> str | None:
    """Name the first file that does not load, in the order of the run; None where all load now."""
    ordered = [names[index] for index in pipeline.order(names, settings["seed"])]
    complaints = ((name, pipeline.why_unreadable(name, settings["benchmark"], source)) for name in ordered)
    return next((f"{name}: {complaint}" for name, complaint in complaints if complaint), None)
