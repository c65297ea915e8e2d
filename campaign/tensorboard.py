"""Write files for TensorBoard without TensorFlow: cells as trials of the HParams plugin, profiled runs as traces."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2, summary_v2
from tensorboard.summary.writer.record_writer import RecordWriter

from campaign.cells.folder import CampaignFolder
from campaign.console import Progress
from campaign.storage import emulation
from jobs import checks
from jobs.errors import JobError
from jobs.events import posix_window
from jobs.judging import stopping
from jobs.judging.judge import spread_of_cell
from jobs.model.record import ODD_FIGURES, Record
from jobs.model.settings import flat_items
from jobs.profiler import tensorboard_files
from jobs.system import files
from jobs.terminal import visible

_FILE = "events.out.tfevents.0.campaign"
_MEANINGS = {True: "passed", False: "\N{DAGGER} unstable", None: "unverifiable"}  # as in the analysis tables
_REAL = "no"
_Setting = bool | float | str


def write_trials(logdir: Path, folder: CampaignFolder, records: Mapping[str, Record], show: Progress) -> list[str]:
    """Write a trial for each cell into `logdir`; return one line for each cell that could not be written, with why."""
    files.make_folder(logdir, exist_ok=True, parents=True)
    facts, faults, tags = dict[str, dict[str, _Setting]](), list[str](), dict[str, None]()
    for cell, record in records.items():
        try:
            facts[cell] = _facts_of_cell(record)
        except ODD_FIGURES as error:
            faults.append(f"{cell}: the record of this cell is damaged: {error}")
    settings = _differing_facts(facts)
    for number, cell in enumerate(settings):
        show("cells", number, len(settings), "")
        try:
            cell_metrics = _metrics_of_cell(records[cell])
            _write_cell(logdir / cell, records[cell], settings[cell], cell_metrics, folder.record(cell).stat().st_mtime)
            _write_profile(logdir / cell, folder.cell(cell), records[cell])
            tags |= dict.fromkeys(cell_metrics)
        except (*ODD_FIGURES, JobError) as error:
            faults.append(f"{cell}: {error}")
    keys = next(iter(settings.values()), {})
    varied = [
        summary_v2.HParam(key, _value_domain([cell_settings[key] for cell_settings in settings.values()]))
        for key in keys
    ]
    metrics = [summary_v2.Metric(tag) for tag in tags]
    _write_events(logdir, [(0, 0, summary_v2.hparams_config_pb(varied, metrics, 0))])
    return faults


def _facts_of_cell(record: Record) -> dict[str, _Setting]:
    """Return the settings of a cell, its status, whether its runs are stable, and its emulated storages."""
    spread = spread_of_cell(record)
    return {
        "benchmark": record["cell"]["benchmark"],
        **{key: _plain_value(value) for key, value in flat_items(record["cell"]["settings"])},
        "status": record["status"],
        "spread": _MEANINGS[spread["passed"] if spread else None],
        "emulated": ", ".join(emulation.emulated_names(record["cell"]["settings"], record["provenance"])) or _REAL,
    }


def _differing_facts(facts: Mapping[str, Mapping[str, _Setting]]) -> dict[str, dict[str, _Setting]]:
    """Return the facts that differ between cells; a cell that lacks a setting gets "-" as its value."""
    blank: dict[str, _Setting] = {key: "-" for cell_facts in facts.values() for key in cell_facts}
    complete = {cell: blank | dict(cell_facts) for cell, cell_facts in facts.items()}
    types = {key: _common_type(complete, key) for key in blank if key == "benchmark" or _differs(complete, key)}
    return {cell: {key: type_(values[key]) for key, type_ in types.items()} for cell, values in complete.items()}


def _differs(facts: Mapping[str, Mapping[str, _Setting]], key: str) -> bool:
    """Return whether a fact differs between cells, or names an emulated storage, which must always be shown."""
    values = {str(cell_facts[key]) for cell_facts in facts.values()}
    return len(values) > 1 or (key == "emulated" and values != {_REAL})


def _plain_value(value: object) -> _Setting:
    return value if isinstance(value, bool | int | float) else visible(str(value))


def _common_type(facts: Mapping[str, Mapping[str, _Setting]], key: str) -> type[_Setting]:
    """Return a type for all values of a key, because TensorBoard cannot mix types in one column."""
    types = {type(cell_facts[key]) for cell_facts in facts.values()}
    return types.pop() if len(types) == 1 else float if types == {int, float} else str


def _value_domain(values: Sequence[_Setting]) -> Any:
    return summary_v2.Discrete(sorted(set(values), key=str), dtype=type(values[0]))


def _metrics_of_cell(record: Record) -> dict[str, float]:
    """Return the metrics of a cell by name: median and range of its figure of merit, and the number of valid runs."""
    name, rates = record["cell"]["figure"], stopping.rates_of_valid_runs(record)
    if not rates:
        return {"valid runs": 0}
    read_rates = [
        run["read_mb_per_s"] for run in stopping.measured_runs(record, "valid") if run.get("read_mb_per_s") is not None
    ]
    metrics = {name: statistics.median(rates), f"{name} min": min(rates), f"{name} max": max(rates)}
    return (
        metrics | ({"read_mb_per_s": statistics.median(read_rates)} if read_rates else {}) | {"valid runs": len(rates)}
    )


def _write_cell(
    folder: Path, record: Record, settings: Mapping[str, _Setting], metrics: Mapping[str, float], at_s: float
) -> None:
    """Write the trial of a cell: settings, metrics, and the rate of each valid run with the run number as step."""
    files.make_folder(folder, exist_ok=True)
    states = {"done": api_pb2.STATUS_SUCCESS, "running": api_pb2.STATUS_RUNNING}
    scalars = [(0, tag, value) for tag, value in metrics.items()]
    by_run = [(run["run"], checks.judged_rate(run)) for run in stopping.measured_runs(record, "valid")]
    scalars += [(number, f"runs/{record['cell']['figure']}", rate) for number, rate in by_run if rate is not None]
    events = [(at_s, step, _scalar_summary(tag, value)) for step, tag, value in scalars]
    start = summary_v2.hparams_pb(dict(settings), trial_id=folder.name, start_time_secs=at_s)
    status = states.get(record["status"], api_pb2.STATUS_FAILURE)
    _write_events(folder, [(at_s, 0, start), *events, (at_s, 0, _end_of_trial(status, at_s))])


def _end_of_trial(status: int, at_s: float) -> Any:
    """Return the summary that ends a trial; TensorBoard's function for such a summary would import TensorFlow."""
    info = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=at_s)
    summary_metadata = metadata.create_summary_metadata(plugin_data_pb2.HParamsPluginData(session_end_info=info))
    value = summary_pb2.Summary.Value(
        tag=metadata.SESSION_END_INFO_TAG, metadata=summary_metadata, tensor=metadata.NULL_TENSOR
    )
    return summary_pb2.Summary(value=[value])


def _scalar_summary(tag: str, value: float) -> Any:
    return summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, simple_value=value)])


def _write_events(folder: Path, summaries: Sequence[tuple[float, int, Any]]) -> None:
    with files.write_whole(folder / _FILE, durable=False) as file:
        records = RecordWriter(file)
        records.write(event_pb2.Event(file_version="brain.Event:2").SerializeToString())
        for at_s, step, summary in summaries:
            records.write(event_pb2.Event(wall_time=at_s, step=step, summary=summary).SerializeToString())


def _write_profile(folder: Path, cell_folder: Path, record: Record) -> None:
    """Write the newest valid profiled run as a trace, unless the trace exists.

    An existing trace is not replaced, because TensorBoard stores its own files next to the trace.
    """
    profiled = [run for run in stopping.measured_runs(record, "valid") if run.get("profile", {}).get("file")]
    if not profiled:
        return
    run = profiled[-1]
    start_digits = "".join(filter(str.isdigit, run["started_utc"]))
    target = folder / "plugins" / "profile" / f"run-{run['run']}-{start_digits}"
    if (target / "campaign.xplane.pb").exists():
        return
    files.make_folder(target, exist_ok=True, parents=True)
    window = posix_window.read_window(cell_folder / f"profile-{run['run']}.npz")
    with files.write_whole(target / "campaign.xplane.pb", durable=False) as file:
        file.write(tensorboard_files.serialised_planes(window, window.started_ns))
