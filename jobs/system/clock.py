"""The time of day; durations are measured with `time.perf_counter`."""

from __future__ import annotations

from datetime import datetime, timezone


def utc_now() -> str:
    """Return the time as ISO 8601, UTC, milliseconds."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
