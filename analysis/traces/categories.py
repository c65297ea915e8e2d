"""The categories of TensorFlow's events, as ``categories.json`` has them: their order, and what saves their time."""

import json
from pathlib import Path

TABLE = json.loads(Path(__file__).with_name("categories.json").read_text(encoding="utf-8"))
CATEGORIES = tuple(TABLE["order"])
"""Of a moment in which several go on, the first one is what the step spends it on."""
INPUT = tuple(TABLE["input"])
REMEDIES = TABLE["remedies"]
COMPUTE, COMMUNICATION, CHECKPOINT, OTHER, UNACCOUNTED = (
    "compute", "communication", "checkpoint", "other", "unaccounted"
)  # fmt: skip
SPENT = (*CATEGORIES, UNACCOUNTED)
"""What adds up to a step."""
