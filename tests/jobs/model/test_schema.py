"""The JSON Schema of a record, for those who read it without this program."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_schema_says_what_is_needed_and_what_is_legal():
    done = subprocess.run([sys.executable, "-m", "jobs.model"], cwd=ROOT, capture_output=True, text=True, check=True)
    schema = json.loads(done.stdout)

    run = schema["$defs"]["RecordedRun"]
    assert schema["$ref"] == "#/$defs/Record"
    assert {"cell", "runs", "terms", "status"} <= {*schema["$defs"]["Record"]["required"]}
    assert run["properties"]["wall_s"] == {"type": "number", "minimum": 0.0, "exclusiveMaximum": 2.0**64}
    assert run["required"] == ["role", "run", "status"]
