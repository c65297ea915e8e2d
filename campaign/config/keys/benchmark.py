"""The group ``benchmark``: its choices, their keys and ranges are what the benchmarks say of themselves."""

from __future__ import annotations

from campaign.errors import UsageError
from jobs.benchmarks.registry import benchmarks, names_of
from jobs.model.conduct import Flat

KEYS: dict[str, type] = {name: each.keys for name, each in benchmarks().items()}
"""The types of a benchmark's own keys, by its name."""
_PREFIX = "benchmark."


def check(values: Flat) -> None:
    """Refuse keys of another benchmark, and what it refuses itself."""
    name = values["benchmark.name"]
    benchmark = benchmarks()[name]
    if {key.removeprefix(_PREFIX) for key in values if key.startswith(_PREFIX)} != benchmark.key_names:
        raise UsageError(f"benchmark.name={name} does not fit the other keys of benchmark", f"write benchmark={name}")
    if values["nodes"] > 1 and not benchmark.several_nodes:
        those = names_of("several_nodes")
        raise UsageError(
            f"nodes={values['nodes']}: benchmark={name} runs on one node", f"benchmark={' or '.join(those)}"
        )
    if refused := benchmark.refusal(values):
        raise UsageError(*refused)
