"""Print the JSON Schema of ``record.json``, made from the types that `jobs.model.record` declares.

python -m jobs.model > record.schema.json
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator

import msgspec

from jobs.model.record import SCHEMA, Record

OF_VERDICTS = ("checks", "looser_checks", "reason", "cause")
"""Keys that a judged record has in memory but not in the file ``record.json``."""


def schema_lines() -> Iterator[str]:
    """Yield the lines of the schema, with one line per property, so that a diff shows each changed property."""
    schema = msgspec.json.schema(Record)
    yield '{"$schema": "https://json-schema.org/draft/2020-12/schema",'
    yield f' "title": "record.json, schema {SCHEMA}",'
    yield f' "$ref": {json.dumps(schema["$ref"])},'
    yield ' "$defs": {'
    kinds = list(schema["$defs"].items())
    for number, (name, kind) in enumerate(kinds, 1):
        end = "," * (number < len(kinds))
        if "description" in kind:
            kind["description"] = inspect.cleandoc(kind["description"])  # Python 3.13 removes the indentation itself
        if "enum" in kind:
            yield f"  {json.dumps(name)}: {json.dumps(kind)}{end}"
            continue
        left_out = OF_VERDICTS if name in ("Record", "RecordedRun") else ()
        properties = [(key, value) for key, value in kind.pop("properties").items() if key not in left_out]
        yield f"  {json.dumps(name)}: {json.dumps(kind)[:-1]},"
        yield '   "properties": {'
        for index, (key, value) in enumerate(properties, 1):
            yield f"    {json.dumps(key)}: {json.dumps(value)}{',' * (index < len(properties))}"
        yield f"   }}}}{end}"
    yield " }"
    yield "}"


if __name__ == "__main__":
    print("\n".join(schema_lines()))
