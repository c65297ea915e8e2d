"""Read a JSON file with a schema: of bounded size, of a schema that is known; what is wrong is said with a cure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

SCHEMA = 1
# A record of 1,000 runs with 10,000 steps each has 400 MB.
MOST_BYTES = 1 << 30
RUN_AGAIN = "copy the file anew from where the campaign ran, or delete its folder and run the campaign again"
# Arrays of a run with a number for each step: most of a record, and nothing here reads them.
STEPS = b'"step_'


class UnreadableError(Exception):
    """A file does not keep the contract; `cure` says what to do."""

    def __init__(self, why: str, cure: str = RUN_AGAIN) -> None:
        super().__init__(why)
        self.cure = cure


def load(path: Path) -> Mapping[str, Any]:
    """Return the JSON object in a file, whose schema is known; arrays of steps are left out.

    Raises
    ------
    UnreadableError
        If the file cannot be read, is too large, is no JSON object, or is of another schema.
    """
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            why = f"is larger than {MOST_BYTES} bytes"
            raise UnreadableError(why)
        value = json.loads(without_steps(text))
    except OSError as error:
        raise UnreadableError(error.strerror or type(error).__name__, "make the file readable for you") from error
    except (ValueError, RecursionError) as error:
        why = f"is not whole JSON ({error})"
        raise UnreadableError(why) from error
    return checked(value)


def checked(value: Any) -> Mapping[str, Any]:
    """Return a JSON value if it is an object of a schema that is known."""
    if not isinstance(value, dict):
        why = f"has a value of the wrong type ({type(value).__name__}, not an object)"
        raise UnreadableError(why)
    if "schema" not in value:
        why = "lacks the key 'schema'"
        raise UnreadableError(why)
    schema = value["schema"]
    if not isinstance(schema, int) or schema < 1:
        why = f"has the schema {schema!r}, which is not a number from 1"
        raise UnreadableError(why)
    if schema > SCHEMA:
        why = f"is of schema {schema}; this program knows schema {SCHEMA}"
        raise UnreadableError(why, "analyse it with the newer tfio-campaign that wrote it")
    return value


def without_steps(text: bytes) -> bytes:
    """Return JSON in which each array of steps is empty; a quote within a JSON string is escaped, so it is a key."""
    parts, kept = [], 0
    while (key := text.find(STEPS, kept)) >= 0:
        colon = text.find(b'":', key)
        start, end = text.find(b"[", colon) + 1, text.find(b"]", colon)
        plain = 0 <= colon < start <= end and not text[colon + 2 : start - 1].strip()
        if not plain or any(text.find(each, start, end) >= 0 for each in (b"[", b'"')):
            start = end = key + len(STEPS)
        parts.append(text[kept:start])
        kept = end
    return b"".join([*parts, text[kept:]])
