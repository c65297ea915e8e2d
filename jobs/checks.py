"""Check the raw metrics of a run. The metrics of a run count only if the run passes the checks.

A check is a dict ``{rule, passed, observed, limit, message}``. `passed` is None if the check is unverifiable: the
machine does not show the needed facts. All functions in this module are pure functions of the raw metrics.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from jobs import disturbances, program_checks
from jobs.model.conduct import Limits as Limits  # noqa: PLC0414 - `checks.Limits`
from jobs.model.results import Check, Conditions, Expectation, Peak, Run
from jobs.objects import OSD_PROCESS_NAME
from jobs.program_checks import at_least as _at_least
from jobs.program_checks import at_most as _at_most
from jobs.program_checks import check_outcome as _check

Rule = Callable[[Run, Limits], Check]
_SHOWN_NAMES = 3
_ORDER = (False, None, True)  # the possible results of a check, from the worst to the best
_NEGLIGIBLE_GAP_S = 0.005  # seconds; between two parts of a step, another thread may get the CPU for one time slice
_NEGLIGIBLE_CLOCK_S = 0.002  # seconds that may pass between the readings of two clocks on a busy machine
# The limit for object stores is lower, because servers cache the last bytes that they fetched from the disk, and a
# client cannot empty the caches of servers.
_OF_OBJECTS_MIN = 0.9
_PROFILED_MIN = 0.99  # equal to the limit for the kernel's count in jobs/events/posix_window.py
# Number of standard deviations. The standard deviation of the time of a read is assumed to be as large as the mean; for
# a wait of half a turn of a disk, the standard deviation is only 0.58 of the mean.
_CERTAIN = 3
# Largest mean lateness of a step, as a share of the step. The utilization may be wrong by this share.
_LATE_MAX = 0.01
LEAST_OF_CLIENT = 98.0
"""Smallest utilization, in percent, that a fast enough client reaches if all batches come from memory."""
_LEAST_SHARE = 0.01  # smallest assumed share of the time in which the threads had CPUs; prevents a division by zero
_NEGLIGIBLE_CPU_S = 0.05  # a few ticks of /proc/stat (10 ms each) do not prove that another program used the CPUs


def may_client_starve(au_percent: float, cpu_wait_percent: float, minimum: float) -> bool:
    """Return whether a shortage of CPUs may explain why an accelerator misses the minimum utilization.

    `minimum` and the utilization `au_percent` are in percent. `cpu_wait_percent` is the share of the time in which the
    threads of the accelerator waited for a CPU.
    """
    return au_percent < minimum <= au_percent / max(_LEAST_SHARE, 1 - cpu_wait_percent / 100)


def judged_rate(run: Mapping[str, Any]) -> float | None:
    """Return the rate of a run, or None for a run without metrics.

    The check `spread` compares the rates of the runs of a cell.
    """
    return run[run["rate"]["key"]] if "rate" in run else None


def rate_unit(run: Mapping[str, Any]) -> str:
    """Return the unit of the rate of a run, or "" if the run has no rate."""
    return str(run["rate"]["unit"]) if "rate" in run else ""


def judge(
    run: Run, cache: str, limits: Limits, peak: Peak | None = None, first: Conditions | None = None
) -> tuple[list[Check], str | None]:
    """Return the checks of one run, and the reason why the run is invalid (None for a valid run).

    `cache` is the required state of the page cache: ``cold``, ``warm`` or ``as_is``. `peak` is the peak speed of the
    storage. `first` contains the conditions of the first valid run of the cell.
    """
    if "ranks" in run:
        return _judge_together(run, cache, limits, peak, first)
    is_program = "program" in run
    reads = "listed_bytes" in run and (cache != "as_is" or is_program or bool(run["bytes_read"]))
    proofs: dict[str, tuple[Rule, ...]] = {
        "cold": (cold_at_server,) if "objects" in run else (cold, device_bytes),
        "warm": (warm, from_memory),
        "as_is": (),
    }
    if is_program:
        proofs |= {"cold": (cold, program_checks.from_device), "warm": (warm, program_checks.from_memory)}
    further_rules: dict[Rule, bool] = {
        program_checks.reads_data: is_program and cache == "cold",
        complete: "images" in run or "bytes_asked" in run,
        program_checks.unchanged_files if is_program else same_data: reads,
        time_adds_up: True,
        quiet: True,
        unthrottled: "throttled_s" in run or bool(run.get("io_limits") or run.get("io_limits_hidden")),
        unstolen: "steal_s" in run,
        undelayed: "waits" in run and not is_program,  # no thread of a user's program is observed
        on_time: "accelerators" in run,
        finite_loss: "last_loss" in run.get("steps", {}),
        checkpoints_durable if "checkpoints" in run else reached_device: "checkpoints" in run or "reached_bytes" in run,
        profile_complete: "profile" in run,
        unspoiled: any("spoiled" in server for server in run.get("served", {}).values()),
    }
    rules = [*proofs[cache], *(rule for rule, applies in further_rules.items() if applies)]
    checks = [rule(run, limits) for rule in rules]
    checks += [_as_expected(rule, expectation) for rule, expectation in run.get("expected", {}).items()]
    checks += [below_peak(run, peak, limits)] if peak and cache == "cold" else []
    checks += [same_conditions(run, first)] if "conditions" in run else []
    failed = [check for check in checks if check["passed"] is False]
    cache_checks = checks[: len(proofs[cache])]
    if not failed and cache_checks and "objects" not in run and all(check["passed"] is None for check in cache_checks):
        failed = cache_checks  # at least one check must prove the state of the page cache
    return checks, _reason(failed)


def _reason(failed: Sequence[Check]) -> str | None:
    return "; ".join(f"{check['rule']}: {check['message']}" for check in failed) or None


def _judge_together(
    run: Run, cache: str, limits: Limits, peak: Peak | None, first: Conditions | None
) -> tuple[list[Check], str | None]:
    """Return the checks of a run that has several ranks, and the reason why the run is invalid.

    For each check that every rank has, only the worst result is returned. The checks over all ranks follow.
    """
    results = [judge(cast("Run", rank["figures"]), cache, limits, peak) for rank in run["ranks"]]
    ranks = [(f"rank {index}", checks) for index, (checks, _) in enumerate(results)]
    device_checks = [
        (f"ranks {', '.join(map(str, indices))} together", _check_shared_device(run, indices, keys, limits))
        for keys in (("device", "device_read_bytes"), ("lowest_device", "lowest_read_bytes"))
        for indices in (_ranks_by_device(run, keys[0]) if cache == "cold" else ())
    ]
    if peak and cache == "cold" and [[*range(len(ranks))]] == _ranks_by_device(run, "device"):
        device_checks.append(("all ranks together", [_below_peak_together(run, peak, limits)]))
    if "conditions" in run:
        device_checks.append(("all ranks together", [same_conditions(run, first)]))
    rules = dict.fromkeys(check["rule"] for _, checks in ranks for check in checks)
    overall_checks = [began_together(run, limits)]
    rank_reasons = [f"rank {index}: {reason}" for index, (_, reason) in enumerate(results) if reason]
    suffix = f" (and {len(rank_reasons) - 1} more ranks)" if len(rank_reasons) > 1 else ""
    device_reasons = [f"{ranks_text}: {reason}" for ranks_text, checks in device_checks if (reason := _failure(checks))]
    reasons = [*(f"{reason}{suffix}" for reason in rank_reasons[:1]), *device_reasons, _failure(overall_checks) or ""]
    return [*(_worst_check(rule, [*ranks, *device_checks]) for rule in rules), *overall_checks], "; ".join(
        filter(None, reasons)
    ) or None


def _failure(checks: Sequence[Check]) -> str | None:
    return _reason([check for check in checks if check["passed"] is False])


def _worst_check(rule: str, checks_of_ranks: Sequence[tuple[str, Sequence[Check]]]) -> Check:
    """Return the worst result of a check over all ranks; the message names the rank with this result.

    Failed is worse than unverifiable, and unverifiable is worse than passed.
    """
    results = [(rank, check) for rank, checks in checks_of_ranks for check in checks if check["rule"] == rule]
    rank, check = min(results, key=lambda result: _ORDER.index(result[1]["passed"]))
    return {**check, "message": f"{rank}: {check['message']}"}


def _ranks_by_device(run: Run, key: str) -> list[list[int]]:
    """Return groups of at least two ranks (by index) that read from the same device of a machine."""
    devices: dict[tuple[Any, Any], list[int]] = {}
    for index, rank in enumerate(run["ranks"]):
        if name := rank["figures"].get(key):
            devices.setdefault((rank["host"], name), []).append(index)
    return [indices for indices in devices.values() if len(indices) > 1]


def _check_shared_device(run: Run, indices: Sequence[int], keys: tuple[str, str], limits: Limits) -> list[Check]:
    """Return the check `device_bytes` for several ranks on one device, because the device counts their sum."""
    rank_metrics: list[Mapping[str, Any]] = [run["ranks"][index]["figures"] for index in indices]
    counts, fetched_bytes = ([metrics.get(key) for metrics in rank_metrics] for key in (keys[1], "device_bytes"))
    file_bytes = [metrics.get("to_fetch_bytes", metrics["bytes_read"]) for metrics in rank_metrics]
    if None in (*counts, *fetched_bytes, *file_bytes):  # the check of each rank reports missing counts
        return []
    sums: Any = {"device_bytes": sum(filter(None, fetched_bytes)), "bytes_read": sum(filter(None, file_bytes))}
    sums |= {keys[0]: rank_metrics[0][keys[0]], keys[1]: max(filter(None, counts), default=0)}
    return [device_bytes(sums, limits)]


def _below_peak_together(run: Run, peak: Peak, limits: Limits) -> Check:
    """Return the check of all ranks together against the peak of the storage.

    A rate above the peak is unverifiable, because the peak was measured with the readers of only one rank.
    """
    check = below_peak(run, peak, limits)
    if check["passed"]:
        return check
    message = f"{check['message']} with the readers of one rank; this run had several ranks"
    return check | {"passed": None, "message": message}


def began_together(run: Run, limits: Limits) -> Check:
    """Return the check that all ranks began at nearly the same time (limit: ``time_error_max`` of the wall time)."""
    skew, wall = run["start_skew_s"], run["wall_s"]
    if skew is None:
        return _at_most("began_together", None, limits.time_error_max, "a rank did not say when it began")
    message = f"all {len(run['ranks'])} ranks began within {skew * 1e3:.2f} ms, in a run of {wall:.4f} s"
    return _at_most("began_together", skew / wall if wall else 0.0, limits.time_error_max, message)


def cold(run: Run, limits: Limits) -> Check:
    """Return the check that nearly no page of the files was in memory just before the start of the run."""
    resident_fraction, message = run["resident_fraction"], _residency(run["resident_fraction"])
    link_count = run.get("linked_files")
    message += (
        f"; {link_count} names are hard links to files named before, and are read from memory" if link_count else ""
    )
    return _at_most("cold", resident_fraction, limits.resident_max, "; ".join([message, *run.get("below", [])]))


def cold_at_server(run: Run, limits: Limits) -> Check:
    """Return the check that the bytes of the objects came from the disk of the object store, not from its memory.

    The number of bytes, including bytes that arrived but were not used, is compared with three counters: the counter of
    the disk, the counter of the device below the disk, and the counters of the server processes. At most a tenth of the
    bytes may be missing in a counter. The counters of devices include the reads of other programs. Therefore the result
    is unverifiable without the counters of the servers, or if snapshots were read back from servers on this machine.
    """
    objects = run["objects"]
    expected_bytes, endpoint = max(run["bytes_read"], objects["bytes"]), objects["endpoint"]
    unexplained_max = 1 - _objects_min(limits)
    disk, lowest = run.get("device"), run.get("lowest_device")
    stores = objects["servers"].get(OSD_PROCESS_NAME)
    counts = {disk: run.get("device_read_bytes"), lowest: run.get("lowest_read_bytes")}
    counts |= {OSD_PROCESS_NAME: stores["read_bytes"]} if disk and stores else {}
    counts_known = {name: count for name, count in counts.items() if name and count is not None}
    if not stores or not counts_known or not expected_bytes:
        doubt = f"what the servers of {endpoint} have in memory cannot be seen from here"
        message = f"{doubt}; set storage.device if the disk of the servers is on this machine"
        return _at_most("cold", None, unexplained_max, message)
    words = ", ".join(f"{name} gave {count / 1e6:.1f} MB" for name, count in counts_known.items())
    message = f"{words} for {expected_bytes / 1e6:.1f} MB of objects"
    unexplained = max(0.0, 1 - min(counts_known.values()) / expected_bytes)
    drained = any(target.get("served_here") for target in run.get("targets", ()))
    if (stores["read_bytes"] is None or drained) and unexplained <= unexplained_max:
        doubt = f"other programs may have read these bytes: only root may see what {OSD_PROCESS_NAME} itself read"
        doubt = "these bytes may include snapshots that were read back from servers here" if drained else doubt
        return _at_most("cold", None, unexplained_max, f"{message}; {doubt}")
    return _at_most("cold", unexplained, unexplained_max, message)


def _objects_min(limits: Limits) -> float:
    return min(_OF_OBJECTS_MIN, limits.device_bytes_min)


def warm(run: Run, limits: Limits) -> Check:
    """Return the check that nearly all pages of the files were in memory just before the start of the run."""
    resident_fraction = run["resident_fraction"]
    return _at_least("warm", resident_fraction, 1 - limits.resident_max, _residency(resident_fraction))


def _residency(resident_fraction: float | None) -> str:
    if resident_fraction is None:
        return "the kernel does not show which pages of another user's files are in memory"
    return f"{resident_fraction:.2%} of the pages were in memory before the start"


def device_bytes(run: Run, limits: Limits) -> Check:
    """Return the check that the bytes of the files came from the device of the files.

    The size of the files on the device is compared with three counters: the counter of the process, the counter of the
    device, and the counter of the lowest device below. No counter may have clearly fewer bytes. The counters of devices
    also count the reads of other programs; if even such a counter is too small, the bytes came from another place.

    The size includes whole blocks and excludes holes. A file with several names (hard links) counts once.
    """
    fetched_bytes, file_bytes = run["device_bytes"], run.get("to_fetch_bytes", run["bytes_read"])
    if fetched_bytes is None:
        return _at_least("device_bytes", None, limits.device_bytes_min, "/proc/self/io is not readable")
    if not fetched_bytes and not run.get("device"):
        return _at_least("device_bytes", None, limits.device_bytes_min, program_checks.NOT_COUNTED)
    if file_bytes is None:
        why = "the size of the files on the device is unknown: compressed files, or a file system without extent lists"
        return _at_least("device_bytes", None, limits.device_bytes_min, why)
    counts = {"the process fetched": fetched_bytes}
    if (name := run.get("device")) and (count := run.get("device_read_bytes")) is not None:
        counts[f"{name} gave"] = count
    if (name := run.get("lowest_device")) and (count := run.get("lowest_read_bytes")) is not None:
        counts[f"{name} below it gave"] = count
    least_bytes = min(counts.values())
    words = [
        f"{counter} {count / 1e6:.1f} MB" for counter, count in counts.items() if count in (fetched_bytes, least_bytes)
    ]
    message = f"{', '.join(words)} for {file_bytes / 1e6:.1f} MB that the files have on the disk, without holes"
    return _at_least("device_bytes", least_bytes / file_bytes if file_bytes else 0.0, limits.device_bytes_min, message)


def from_memory(run: Run, limits: Limits) -> Check:
    """Return the check that a warm run fetched nearly no bytes from the device."""
    fetched_bytes, read_bytes = run["device_bytes"], run["bytes_read"]
    if fetched_bytes is None:
        return _at_most("from_memory", None, limits.resident_max, "/proc/self/io is not readable")
    message = f"{fetched_bytes / 1e6:.1f} MB came from the device for {read_bytes / 1e6:.1f} MB read"
    return _at_most("from_memory", fetched_bytes / read_bytes if read_bytes else 0.0, limits.resident_max, message)


def same_data(run: Run, _limits: Limits) -> Check:
    """Return the check that all bytes were read, and that the files matched the manifest before and after the run."""
    change_count, read_bytes = run["changed_files"], run["bytes_read"]
    expected_bytes = run.get("bytes_predicted", run["listed_bytes"])
    is_complete = run["images"] == run["images_asked"] and not run["image_errors"]
    bytes_source = "its loads ask for" if "bytes_predicted" in run else "the manifest lists"
    message = f"{read_bytes:,} bytes were read of the {expected_bytes:,} that {bytes_source}"
    if change_count:
        names = ", ".join(run["changed"])
        more = f" and {change_count - len(run['changed'])} more" if change_count > len(run["changed"]) else ""
        message = f"{change_count} files changed since the manifest listed them: {names}{more}"
    passed = not change_count and (read_bytes == expected_bytes or not is_complete)
    return _check("same_data", passed, read_bytes, expected_bytes, message)


def unthrottled(run: Run, limits: Limits) -> Check:
    """Return the check that no CPU quota delayed the run; limits on reads and writes that it reached are said."""
    quota_checks = [_check_quota(run, limits)] if "throttled_s" in run else []
    return min([*quota_checks, _check_io_limits(run, limits)], key=lambda check: _ORDER.index(check["passed"]))


def _check_quota(run: Run, limits: Limits) -> Check:
    share = run["throttled_s"] / run["elapsed_s"]
    message = (
        f"a quota of {run['quota_cores']:.2g} cores was used up in {run['throttled_periods']} periods:"
        f" threads waited {run['throttled_s']:.2f} s"
    )
    return _at_most("unthrottled", share, limits.throttled_max, message)


def _check_io_limits(run: Run, limits: Limits) -> Check:
    """Return the check of limits on reads and writes, which never fails: such a limit is part of the machine."""
    share, message = disturbances.nearest_limit(run) or (0.0, "no control group has a limit on reads and writes")
    if share <= limits.io_limit_max and run.get("io_limits_hidden"):
        doubt = "a parent control group may limit reads and writes, and cannot be seen from here"
        return _at_most("unthrottled", None, limits.io_limit_max, doubt)
    return _check("unthrottled", share <= limits.io_limit_max or None, share, limits.io_limit_max, message)


def undelayed(run: Run, limits: Limits) -> Check:
    """Return the check that threads that had work could run: no thread slept, was blocked or was stopped for long.

    Threads are sampled at random times. The observed share of delays is the largest share that the samples prove. The
    check is unverifiable if the threads cannot be observed. It is also unverifiable if there are so few samples that
    even a delay in every sample would prove only a share within the limit.
    """
    error, share = run["waits"]["error"], disturbances.delayed_share(run)
    unverifiable = error or disturbances.most_certain(run) <= limits.delayed_max < 1
    message = f"what threads wait for cannot be seen: {error}" if error else disturbances.delays_in_words(run)
    return _at_most(
        "undelayed", None if unverifiable and share <= limits.delayed_max else share, limits.delayed_max, message
    )


def unstolen(run: Run, limits: Limits) -> Check:
    """Return the check that the hypervisor took nearly no CPU time from the virtual machine."""
    stolen_s = run["steal_s"]
    share = stolen_s / run["elapsed_s"] if stolen_s > _NEGLIGIBLE_CPU_S else 0.0
    message = f"the hypervisor took {stolen_s:.2f} s of the processors in {run['elapsed_s']:.2f} s"
    message = f"{message}: {_cores(share)} cores (at most {limits.stolen_max:g})"
    return _check("unstolen", share <= limits.stolen_max, share, limits.stolen_max, message)


def complete(run: Run, _limits: Limits) -> Check:
    """Return the check that all requested images were delivered, or that a baseline read or wrote all bytes."""
    if "images" not in run:
        moved_bytes = run["bytes_written" if "bytes_written" in run else "bytes_read"]
        requested = run["bytes_asked"]
        message = f"{moved_bytes / 1e6:.1f} of {requested / 1e6:.1f} MB moved in {run['requests']} requests"
        return _check("complete", moved_bytes == requested, moved_bytes, requested, message)
    delivered, requested, errors = run["images"], run["images_asked"], run["image_errors"]
    message = f"{delivered} of {requested} images delivered"
    if errors:
        names = [image["file"] for image in run["unreadable"][:_SHOWN_NAMES]]
        more = f" and {errors - len(names)} more" if errors > len(names) else ""
        message += f", {errors} unreadable: {', '.join(names)}{more}"
    passed = delivered == requested and not errors
    return _check("complete", passed, delivered, requested, message)


def reached_device(run: Run, limits: Limits) -> Check:
    """Return the check that the written bytes reached the device before the flush ended.

    The bytes are counted by the device of the file, including the writes of other programs. If the device has no
    counter, the kernel's counter for this process is used.
    """
    reached_bytes, written_bytes = run["reached_bytes"], run["bytes_written"]
    if reached_bytes is None and "objects" not in run:  # a client of an object store writes to the network, not a disk
        reached_bytes = run["written_bytes"]
    share_min = _objects_min(limits) if "objects" in run else limits.device_bytes_min
    if reached_bytes is None:
        return _at_least("reached_device", None, share_min, "no counter of written bytes can be read")
    message = f"{reached_bytes / 1e6:.1f} MB came to the device for {written_bytes / 1e6:.1f} MB written"
    return _at_least("reached_device", reached_bytes / written_bytes, share_min, message)


def time_adds_up(run: Run, limits: Limits) -> Check:
    """Return the check that the separately measured parts add up to the wall time, and that the clock is correct.

    If the run's clock differs from the kernel's clock, a library replaced the clock of the run. If the run's clock
    differs from the hardware's clock, adjtimex(2) made the clock of all programs faster or slower.
    """
    metrics: Mapping[str, Any] = run
    parts_s = sum(metrics[part] for part in run["wall_parts"])
    wall_s = run["wall_s"]
    gap_s = abs(wall_s - parts_s)
    error = gap_s / wall_s if wall_s and gap_s > _NEGLIGIBLE_GAP_S else 0.0
    message = f"parts {parts_s:.4f} s, wall {wall_s:.4f} s"
    for clock, owner in (("kernel_s", "the kernel's"), ("raw_s", "the hardware's")):
        clock_s = metrics.get(clock) or run["elapsed_s"]
        gained_s = abs(run["elapsed_s"] - clock_s)
        if gained_s > _NEGLIGIBLE_CLOCK_S and gained_s / clock_s > limits.time_error_max:
            error = max(error, gained_s / clock_s)
            message += f"; the clock of the run counted {run['elapsed_s']:.4f} s where {owner} counted {clock_s:.4f} s"
    return _at_most("time_adds_up", error, limits.time_error_max, message)


def quiet(run: Run, limits: Limits) -> Check:
    """Return the check that no other program used the device or the CPUs during the run.

    The check does not use the load average before the run, because previous runs of the campaign cause most of this
    load. The CPU time of the processes that emulate a storage does not count as use by other programs.
    """
    other_cpu, others = run["other_cpu"], disturbances.longest_other_use(run)
    cpu_max = limits.other_cpu_max + serving_s(run) / run["elapsed_s"]
    device_is_busy = others is not None and others.share > limits.other_device_max
    cpu_is_busy = other_cpu * run["elapsed_s"] > _NEGLIGIBLE_CPU_S and other_cpu > cpu_max
    passed = False if device_is_busy or cpu_is_busy else None if others is None else True
    device_use = (
        f"{others.message} (at most {100 * limits.other_device_max:.3g}%)"
        if others
        else "used the device to an unknown extent"
    )
    cpu_use = f"kept {_cores(other_cpu)} cores busy (at most {float(_cores(cpu_max)):g})"
    first_use, second_use = (cpu_use, device_use) if cpu_is_busy and not device_is_busy else (device_use, cpu_use)
    observed = {"other_device": others.share if others else None, "other_cpu": other_cpu}
    limit = {"other_device": limits.other_device_max, "other_cpu": cpu_max}
    return _check("quiet", passed, observed, limit, f"others {first_use} and {second_use}")


def _cores(number: float) -> str:
    """Return a number of cores with two decimals; a smaller number has two digits, so that it is not shown as 0."""
    return f"{number:.2g}" if 0 < number < 0.1 else f"{number:.2f}"  # noqa: PLR2004 - see the docstring


def serving_s(run: Run) -> float:
    """Return the CPU seconds for emulated storages: the time of the emulating processes, and the time of the kernel.

    The kernel's CPU time is calculated from the CPU time per request and per GB, which were measured before. A storage
    without these measurements counts as 0.
    """
    return sum(server["cpu_s"] + _serving_kernel_s(server) for server in run.get("served", {}).values())


def _serving_kernel_s(server: Mapping[str, float]) -> float:
    requests_s = (server["reads"] + server["writes"]) * server.get("request_cpu_s", 0.0)
    bytes_s = sum(
        server[f"{direction}_bytes"] / 1e9 * server.get(f"{direction}_gb_cpu_s", 0.0)
        for direction in ("read", "written")
    )
    return requests_s + bytes_s


def on_time(run: Run, _limits: Limits) -> Check:
    """Return the check for emulated accelerators: steps end on time, and the parts of the time add up to the total."""
    rows = run["accelerators"]
    late_share, accelerator = max((row["late_share"], row["accelerator"]) for row in rows)
    gap = max(abs(row["wall_s"] - sum(row[part] for part in run["wall_parts"])) / row["wall_s"] for row in rows)
    message = f"accelerator {accelerator} ended its steps {late_share:.2%} of a step late"
    if gap > _LATE_MAX:
        message = f"the sum of the parts of an accelerator's time differs from the wall time by {gap:.2%}"
    return _at_most("on_time", max(late_share, gap), _LATE_MAX, message)


def finite_loss(run: Run, _limits: Limits) -> Check:
    """Return the check that the loss of every training step is a finite number."""
    lost_step, last_loss = run["steps"]["lost_loss"], run["steps"]["last_loss"]
    message = f"step {lost_step}: the loss is not a finite number" if lost_step else f"the last loss is {last_loss:.3g}"
    return _check("finite_loss", lost_step is None, lost_step, None, message)


def checkpoints_durable(run: Run, _limits: Limits) -> Check:
    """Return the check that every snapshot was read back correctly, and that all its bytes were written to the devices.

    For each device, the bytes written to the device are divided by the bytes of the snapshots on the device. A snapshot
    counts twice if the fast and the slow storage of a burst buffer are on the same device.
    """
    requested, lines = run["checkpoints_asked"], run["checkpoints"]
    verified = sum(line["verified"] for line in lines)
    written_bytes = {target["source"]: target["written_bytes"] for target in run["targets"]}
    snapshot_bytes = {
        s: sum(t["bytes"] for t in run["targets"] if s in (t["source"], *t.get("below", ()))) for s in written_bytes
    }
    shares = {
        s: count / snapshot_bytes[s] for s, count in written_bytes.items() if count is not None and snapshot_bytes[s]
    }
    is_incomplete = verified < max(1, requested) or min(shares.values(), default=1.0) < 1
    passed = False if is_incomplete else True if len(shares) == len(written_bytes) else None
    device_texts = [
        f"{(written_bytes[s] or 0) / 1e6:.1f} MB written to {s} for {snapshot_bytes[s] / 1e6:.1f} MB" for s in shares
    ]
    device_texts += [f"bytes written for {t['storage']} unknown" for t in run["targets"] if t["source"] not in shares]
    message = f"{verified} of {requested} snapshots read back on {run['targets'][-1]['storage']}"
    observed = {"verified": verified, "written_share": min(shares.values(), default=None)}
    text = ", ".join([message, *device_texts, *run["checkpoint_troubles"]])
    return _check("checkpoints_durable", passed, observed, {"verified": requested, "written_share": 1.0}, text)


def profile_complete(run: Run, _limits: Limits) -> Check:
    """Return the check that the profile is complete.

    The profile must not have dropped calls, must have all reads that the kernel counted, and must have all bytes that
    the run read.
    """
    profile, read_bytes = run["profile"], run.get("bytes_read") or 0
    seen_bytes, kernel_bytes, blind_spot = (
        profile["seen_read_bytes"],
        profile["kernel_read_bytes"],
        profile["blind_spot"],
    )
    profile_bytes = profile["bytes_read"]
    # This comparison is needed because the kernel's counter includes neither mapped files nor running child processes.
    lacks_data = profile_bytes < _PROFILED_MIN * read_bytes
    passed = (
        None
        if kernel_bytes is None and not profile["dropped"] and not lacks_data
        else blind_spot is None and not lacks_data
    )
    message = (
        f"the profile has {profile_bytes / 1e6:.1f} MB of the {read_bytes / 1e6:.1f} MB that the run read"
        f" (at least {_PROFILED_MIN:.0%})"
        if lacks_data and not profile["dropped"]
        else blind_spot
        or f"{seen_bytes / 1e6:.1f} MB seen of {(kernel_bytes or 0) / 1e6:.1f} MB that the kernel counted"
    )
    if profile["dropped"] and profile["mode"] == "trace":
        message += ": profile.posix=counters"
    return _check("profile_complete", passed, seen_bytes, kernel_bytes, message)


def unspoiled(run: Run, _limits: Limits) -> Check:
    """Return the check that no fault was injected into the requests of an emulated storage.

    An injected fault would change the time of the run.
    """
    faults = {name: count for name, server in run["served"].items() if (count := int(server.get("spoiled", 0)))}
    texts = [f"faults were injected into {count:,} requests of the model of {name}" for name, count in faults.items()]
    count = sum(faults.values())
    return _check("unspoiled", not count, count, 0, "; ".join(texts) or "no faults were injected")


def _as_expected(rule: str, expectation: Expectation) -> Check:
    """Return the check that a value of the run is the value that the benchmark predicts."""
    passed = None if expectation["found"] is None else expectation["found"] == expectation["expected"]
    return _check(rule, passed, None, None, expectation["message"])


def below_peak(run: Run, peak: Peak, limits: Limits) -> Check:
    """Return the check that a cold run did not read faster than the storage can deliver (paper, Table I).

    A rate up to the peak of the storage passes. A rate above the peak is unverifiable if no ceiling is known for this
    number of readers. If a ceiling is known, a rate fails if it exceeds the ceiling by more than chance can explain,
    and all other rates above the peak are unverifiable.
    """
    rate, peak_rate, ceiling = run["read_mb_per_s"], peak["mb_per_s"], peak["ceiling_mb_per_s"]
    message = f"{rate:.1f} MB/s, and the storage alone gives {peak_rate:.1f} MB/s ({peak['by']})"
    check = _at_most("below_peak", rate / peak_rate, limits.peak_max, message)
    if check["passed"]:
        return check
    if ceiling is None:
        return check | {"passed": None, "message": f"{message} to one reader; a baseline with random_read is missing"}
    rate_max = limits.peak_max * ceiling * (1 + _chance(peak["reads"], run.get("images")))
    message = f"{message}; an honest run reads at most {rate_max:.1f} MB/s"
    return check | {"passed": None if rate <= rate_max else False, "message": message}


def _chance(*reads: int | None) -> float:
    """Return the largest share by which chance can raise the ratio of two rates.

    `reads` are the numbers of reads of the two rates. All runs with one seed count as one run, because these runs read
    in the same order and so are equally lucky.
    """
    return _CERTAIN * math.sqrt(sum(1 / count for count in reads if count))


def conditions_of(run: Run) -> Conditions:
    """Return the conditions of a run; the exit code of a user's program is one of them."""
    conditions = run["conditions"]
    code = {"exit code": str(run["program"].get("exit", 0))} if "program" in run else {}
    return {**conditions, "process": {**conditions["process"], **code}}


def same_conditions(run: Run, first: Conditions | None) -> Check:
    """Return the check that the conditions are equal to the conditions of the first valid run, and did not change."""
    before, conditions = run["conditions"], conditions_of(run)
    changes = _differences(before, run.get("conditions_after", before))
    differences = _differences(first or conditions, conditions)
    texts = [f"{text} at the end of the run" for text in changes] + [f"{text} in this run" for text in differences]
    count = len(conditions["process"] | conditions["machine"]) + sum(map(len, conditions["storages"].values()))
    message = "; ".join(texts) or f"{count} conditions are equal to the conditions of the first valid run"
    return _check("same_conditions", not texts, len(texts), 0, message)


def _by_name(conditions: Conditions) -> dict[str, Any]:
    """Return all conditions by name; the name of a storage's condition includes the name of the storage."""
    by_name = conditions["process"] | conditions["machine"]
    storages = conditions["storages"].items()
    return by_name | {f"{name} of {storage}": fact for storage, facts in storages for name, fact in facts.items()}


def _differences(conditions: Conditions, others: Conditions) -> list[str]:
    if conditions == others:
        return []
    earlier, later = _by_name(conditions), _by_name(others)
    names = [name for name in dict.fromkeys([*earlier, *later]) if earlier.get(name) != later.get(name)]
    return [f"{name} was {earlier.get(name, 'unset')}, and is {later.get(name, 'unset')}" for name in names]


def spread(rates: Sequence[float], limits: Limits) -> Check:
    """Return the check that the spread of the rates of a cell is small; the spread is (max - min) / median."""
    if len(rates) <= 1:
        message = "only 1 valid measured run" if rates else "no valid measured run"
        return _at_most("spread", None, limits.spread_max, message)
    observed = (max(rates) - min(rates)) / statistics.median(rates)
    message = f"(max - min) / median of {len(rates)} measured runs is {observed:.2%} (at most {limits.spread_max:.2%})"
    return _check("spread", observed <= limits.spread_max, observed, limits.spread_max, message)
