"""The limits of the checks (`jobs.checks`): range, meaning and default of each, declared once."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from jobs.model.declared import Keys, Setting


class Tolerances(Keys):
    """The limits of which a site has its own."""

    spread_max: Annotated[
        float, Meta(ge=0, le=100), Setting("(max - min) / median of a cell's measured runs that is called stable")
    ] = 0.04  # the paper's cluster stayed below 4 % (IV.A)
    other_cpu_max: Annotated[
        float, Meta(ge=0, le=1e4), Setting("kept busy by other processes during a run", unit="cores")
    ] = 0.5
    throttled_max: Annotated[
        float, Meta(ge=0, le=1e4), Setting("share of a run for which a CPU quota (cgroup) holds its threads back")
    ] = 0.01


class Limits(Tolerances):
    """Limits of the checks (jobs/checks.py gives each rule); of the first three the site has its own."""

    resident_max: Annotated[
        float, Meta(ge=0, le=1), Setting("share of the files' pages in memory before a cold run")
    ] = 0.01
    device_bytes_min: Annotated[
        float,
        Meta(ge=0, le=1),
        Setting("bytes that came from the device over those that the files have there, cold; of objects 0.9"),
    ] = 0.99
    time_error_max: Annotated[
        float, Meta(ge=0, le=1), Setting("share of the wall time that the named parts may miss")
    ] = 0.01
    other_device_max: Annotated[
        float, Meta(ge=0, le=1), Setting("share of the run in which the device served other processes")
    ] = 0.05
    stolen_max: Annotated[
        float,
        Meta(ge=0, le=1e4),
        Setting("taken by the hypervisor of a virtual machine, on average", unit="processors"),
    ] = 0.5
    delayed_max: Annotated[
        float,
        Meta(ge=0, le=1),
        Setting("share of the time in which threads with work were asleep, held by others or stopped"),
    ] = 0.05
    io_limit_max: Annotated[
        float,
        Meta(ge=0, le=1e4),
        Setting("what a run reached of the limits that control groups set to reads and writes"),
    ] = 0.5
    peak_max: Annotated[
        float,
        Meta(ge=0, le=1000),
        Setting("MB/s of a cold run over those of its storage by itself; above the ceiling the run is invalid"),
    ] = 1.05
