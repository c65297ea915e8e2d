"""The limits of the checks (`jobs.checks`): range, meaning and default of each, declared once."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from jobs.model.declared import Keys, Setting


class Tolerances(Keys):
    """Limits of the checks that a site can set for itself."""

    spread_max: Annotated[
        float, Meta(ge=0, le=100), Setting("largest (max - min) / median of the measured runs of a stable cell")
    ] = 0.04  # the paper's cluster stayed below 4 % (IV.A)
    other_cpu_max: Annotated[
        float,
        Meta(ge=0, le=1e4),
        Setting("largest CPU use of other processes during a run", unit="cores"),
    ] = 0.5
    throttled_max: Annotated[
        float, Meta(ge=0, le=1e4), Setting("largest share of a run for which a CPU quota (cgroup) stops its threads")
    ] = 0.01


class Limits(Tolerances):
    """Limits of the checks. The site (site.spread_max) sets the first three; jobs/checks.py has the rules."""

    resident_max: Annotated[
        float, Meta(ge=0, le=1), Setting("largest share of the files' pages in memory before a cold run")
    ] = 0.01
    device_bytes_min: Annotated[
        float,
        Meta(ge=0, le=1),
        Setting(
            "smallest ratio of bytes read from the device to bytes of the files on the device, in a cold run; of an"
            " object store it is 0.9"
        ),
    ] = 0.99
    time_error_max: Annotated[
        float,
        Meta(ge=0, le=1),
        Setting("largest difference between the wall time and the sum of its parts, as a share of the wall time"),
    ] = 0.01
    other_device_max: Annotated[
        float, Meta(ge=0, le=1), Setting("largest share of a run for which the device served other processes")
    ] = 0.05
    stolen_max: Annotated[
        float,
        Meta(ge=0, le=1e4),
        Setting("largest average CPU time that the hypervisor takes from a virtual machine", unit="cores"),
    ] = 0.5
    delayed_max: Annotated[
        float,
        Meta(ge=0, le=1),
        Setting(
            "largest share of a run for which threads with work slept, were blocked by another program or were stopped"
        ),
    ] = 0.05
    io_limit_max: Annotated[
        float,
        Meta(ge=0, le=1e4),
        Setting("largest share that a run uses of the I/O limits of its control group (cgroup)"),
    ] = 0.5
    peak_max: Annotated[
        float,
        Meta(ge=0, le=1000),
        Setting(
            "largest ratio of a cold run's MB/s to the baseline of its storage (benchmark=baseline); a faster run is"
            " unverifiable, and invalid above the ceiling (docs/measuring.md)"
        ),
    ] = 1.05
