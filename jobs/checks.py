"""The rules that a run must meet before its figure counts; pure functions of the raw figures.

A check is a dict ``{rule, passed, observed, limit, message}``; `passed` is None where the machine cannot tell.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, cast

from jobs import delays, neighbours, program_checks
from jobs.check_outcome import at_least as _at_least
from jobs.check_outcome import at_most as _at_most
from jobs.check_outcome import outcome as _check
from jobs.model.limits import Limits as Limits  # noqa: PLC0414 - `checks.Limits`
from jobs.model.results import Check, Conditions, Expectation, Peak, Run
from jobs.objects import STORES

_SHOWN_NAMES = 3
_ORDER = (False, None, True)  # of the ends of checks: the worst one first
_NEGLIGIBLE_GAP_S = 0.005  # between two parts of a step the kernel may give one time slice to another thread
_NEGLIGIBLE_CLOCK_S = 0.002  # two clocks cannot be read at one moment, least of all on a busy machine
# Of objects: what their servers fetched last is in caches that nobody here can empty.
_OF_OBJECTS_MIN = 0.9
_PROFILED_MIN = 0.99  # as of the kernel's count: jobs/profiler/window.py
# Standard deviations, each as large as the mean time of a read: half a turn of a disk has 0.58 of its mean.
_CERTAIN = 3
_NEGLIGIBLE_CPU_S = 0.05  # /proc/stat counts in ticks of 10 ms: a few of them are no second user of a short run


def rate(run: Mapping[str, Any]) -> float | None:
    """Return the rate whose spread over the runs of a cell is judged; None for a run without metrics."""
    return run[run["rate"]["key"]] if "rate" in run else None


def unit(run: Mapping[str, Any]) -> str:
    """Return the unit of the rate of a run; empty where it has none."""
    return str(run["rate"]["unit"]) if "rate" in run else ""


def judge(
    run: Run, cache: str, limits: Limits, peak: Peak | None = None, first: Conditions | None = None
) -> tuple[list[Check], str | None]:
    """Apply the rules of one run; returns the checks, and why the run does not count: None for a valid run.

    `cache` is the state of the page cache that it must have, ``cold``, ``warm`` or ``as_is``; `peak` what its storage
    gives at most; `first` the conditions of the first run of its cell that counts.
    """
    if "ranks" in run:
        return _judge_together(run, cache, limits, peak, first)
    kept = (cold_at_server,) if "objects" in run else (cold, device_bytes)
    rules = {"cold": kept, "warm": (warm, from_memory), "as_is": ()}
    is_program = "program" in run
    if is_program:
        rules = {"cold": (cold, program_checks.from_device), "warm": (warm, program_checks.from_memory), "as_is": ()}
    trained = (finite_loss,) if "last_loss" in run.get("steps", {}) else ()
    saved = (checkpoints_durable,) if "checkpoints" in run else (reached_device,) if "reached_bytes" in run else ()
    used = (program_checks.reads_data,) if is_program and cache == "cold" else ()
    asked = (complete,) if "images" in run or "bytes_asked" in run else ()
    listed = (same_data,) if "listed_bytes" in run and (cache != "as_is" or is_program or run["bytes_read"]) else ()
    listed = (program_checks.unchanged,) if listed and is_program else listed
    held = (unthrottled,) if "throttled_s" in run or run.get("io_limits") or run.get("io_limits_hidden") else ()
    stolen = (unstolen,) if "steal_s" in run else ()
    delayed = (undelayed,) if "waits" in run and not is_program else ()  # of a program's threads nothing is seen
    profiled = (profile_complete,) if "profile" in run else ()
    modelled = (unspoiled,) if any("spoiled" in did for did in run.get("served", {}).values()) else ()
    others = (
        *used,
        *asked,
        *listed,
        time_adds_up,
        quiet,
        *held,
        *stolen,
        *delayed,
        *trained,
        *saved,
        *profiled,
        *modelled,
    )
    checks = [rule(run, limits) for rule in (*rules[cache], *others)]
    checks += [_as_expected(rule, each) for rule, each in run.get("expected", {}).items()]
    checks += [below_peak(run, peak, limits)] if peak and cache == "cold" else []
    checks += [same_conditions(run, first)] if "conditions" in run else []
    failed = [check for check in checks if check["passed"] is False]
    proofs = checks[: len(rules[cache])]
    if not failed and proofs and "objects" not in run and all(check["passed"] is None for check in proofs):
        failed = proofs  # either one decides; with neither, the state of the cache has no proof
    return checks, _reason(failed)


def _reason(failed: Sequence[Check]) -> str | None:
    return "; ".join(f"{check['rule']}: {check['message']}" for check in failed) or None


def _judge_together(
    run: Run, cache: str, limits: Limits, peak: Peak | None, first: Conditions | None
) -> tuple[list[Check], str | None]:
    """Judge each rank by itself, then what only all of them show; of each rule the worst one stands for all."""
    each = [judge(cast("Run", rank["figures"]), cache, limits, peak) for rank in run["ranks"]]
    ranks = [(f"rank {place}", checks) for place, (checks, _) in enumerate(each)]
    shared = [
        (f"ranks {', '.join(map(str, places))} together", _of_shared_device(run, places, which, limits))
        for which in (("device", "device_read_bytes"), ("lowest_device", "lowest_read_bytes"))
        for places in (_sharing(run, which[0]) if cache == "cold" else ())
    ]
    if peak and cache == "cold" and [[*range(len(ranks))]] == _sharing(run, "device"):
        shared.append(("all ranks together", [_below_peak_together(run, peak, limits)]))
    if "conditions" in run:
        shared.append(("all ranks together", [same_conditions(run, first)]))
    rules = dict.fromkeys(check["rule"] for _, checks in ranks for check in checks)
    over_ranks = [began_together(run, limits)]
    bad = [f"rank {place}: {why}" for place, (_, why) in enumerate(each) if why]
    more = f" (and {len(bad) - 1} more ranks)" if len(bad) > 1 else ""
    apart = [f"{who}: {why}" for who, checks in shared if (why := _failed(checks))]
    reasons = [*(f"{why}{more}" for why in bad[:1]), *apart, _failed(over_ranks) or ""]
    return [*(_worst(rule, [*ranks, *shared]) for rule in rules), *over_ranks], "; ".join(filter(None, reasons)) or None


def _failed(checks: Sequence[Check]) -> str | None:
    return _reason([check for check in checks if check["passed"] is False])


def _worst(rule: str, judged: Sequence[tuple[str, Sequence[Check]]]) -> Check:
    """Return the first check of a rule that failed, else one that cannot tell, else the first one, with who has it."""
    found = [(who, check) for who, checks in judged for check in checks if check["rule"] == rule]
    who, check = min(found, key=lambda each: _ORDER.index(each[1]["passed"]))
    return {**check, "message": f"{who}: {check['message']}"}


def _sharing(run: Run, which: str) -> list[list[int]]:
    """Return the ranks that read from one device of one machine, by their places; those alone on theirs left out."""
    devices: dict[tuple[Any, Any], list[int]] = {}
    for place, rank in enumerate(run["ranks"]):
        if name := rank["figures"].get(which):
            devices.setdefault((rank["host"], name), []).append(place)
    return [places for places in devices.values() if len(places) > 1]


def _of_shared_device(run: Run, places: Sequence[int], which: tuple[str, str], limits: Limits) -> list[Check]:
    """Hold the bytes of all ranks on a device against its counter, in which each of them sees the others', too."""
    own: list[Mapping[str, Any]] = [run["ranks"][place]["figures"] for place in places]
    counts, fetched = ([each.get(key) for each in own] for key in (which[1], "device_bytes"))
    wanted = [each.get("to_fetch_bytes", each["bytes_read"]) for each in own]
    if None in (*counts, *fetched, *wanted):  # each rank's own check says so
        return []
    together: Any = {"device_bytes": sum(filter(None, fetched)), "bytes_read": sum(filter(None, wanted))}
    together |= {which[0]: own[0][which[0]], which[1]: max(filter(None, counts), default=0)}
    return [device_bytes(together, limits)]


def _below_peak_together(run: Run, peak: Peak, limits: Limits) -> Check:
    """Look at all bytes of a device: its baseline has the readers of one rank, and more of them may get more."""
    found = below_peak(run, peak, limits)
    if found["passed"]:
        return found
    return found | {"passed": None, "message": f"{found['message']} to the readers of one rank; there were more"}


def began_together(run: Run, limits: Limits) -> Check:
    """Hold when no rank began later than the first one by more than what the parts of the wall time may miss."""
    skew, wall = run["start_skew_s"], run["wall_s"]
    if skew is None:
        return _at_most("began_together", None, limits.time_error_max, "a rank did not say when it began")
    message = f"all {len(run['ranks'])} ranks began within {skew * 1e3:.2f} ms, in a run of {wall:.4f} s"
    return _at_most("began_together", skew / wall if wall else 0.0, limits.time_error_max, message)


def cold(run: Run, limits: Limits) -> Check:
    """Hold when next to nothing of the files was in memory just before the start."""
    resident, message = run["resident_fraction"], _residency(run["resident_fraction"])
    linked = run.get("linked_files")
    message += f"; {linked} names are hard links to files named before, and are read from memory" if linked else ""
    return _at_most("cold", resident, limits.resident_max, "; ".join([message, *run.get("below", [])]))


def cold_at_server(run: Run, limits: Limits) -> Check:
    """Hold when the bytes of objects came from the disk below their servers; a client keeps none of them.

    By the counters of the disk and of the one below it, which count everybody, and by the account of the servers: the
    share of the bytes that none of them explains is at most a tenth. Bytes that came and were not taken count as well.
    Without the account of servers here, the disk may have been read by others; and from either, what a drainer reads
    back of snapshots, from servers of this machine, cannot be told.
    """
    objects = run["objects"]
    wanted, endpoint = max(run["bytes_read"], objects["bytes"]), objects["endpoint"]
    most = 1 - _least_of_objects(limits)
    disk, lowest = run.get("device"), run.get("lowest_device")
    stores = objects["servers"].get(STORES)
    counts = {disk: run.get("device_read_bytes"), lowest: run.get("lowest_read_bytes")}
    counts |= {STORES: stores["read_bytes"]} if disk and stores else {}
    found = {name: count for name, count in counts.items() if name and count is not None}
    if not stores or not found or not wanted:
        hidden = f"what the servers of {endpoint} have in memory cannot be seen from here"
        message = f"{hidden}: the bytes may be from there (storage.device=… names their disk, where it is here)"
        return _at_most("cold", None, most, message)
    words = ", ".join(f"{name} gave {count / 1e6:.1f} MB" for name, count in found.items())
    message = f"{words} for {wanted / 1e6:.1f} MB of objects"
    unexplained = max(0.0, 1 - min(found.values()) / wanted)
    drained = any(target.get("served_here") for target in run.get("targets", ()))
    if (stores["read_bytes"] is None or drained) and unexplained <= most:
        hidden = f"others may have read that: what {STORES} itself read is hidden from this user (root may see it)"
        hidden = "snapshots that were read back from servers here may be part of it" if drained else hidden
        return _at_most("cold", None, most, f"{message}; {hidden}")
    return _at_most("cold", unexplained, most, message)


def _least_of_objects(limits: Limits) -> float:
    return min(_OF_OBJECTS_MIN, limits.device_bytes_min)


def warm(run: Run, limits: Limits) -> Check:
    """Hold when next to all of the files was in memory just before the start."""
    resident = run["resident_fraction"]
    return _at_least("warm", resident, 1 - limits.resident_max, _residency(resident))


def _residency(resident: float | None) -> str:
    if resident is None:
        return "the kernel does not tell this user what is in memory of another user's files"
    return f"{resident:.2%} of the pages were in memory before the start"


def device_bytes(run: Run, limits: Limits) -> Check:
    """Hold when what the files have on their device came from there: by the account of this process and the device's.

    What they have there is whole blocks, without holes, each file once whatever its names. The device's counter, and
    that of the lowest device below it, count everybody: where one counts less, the bytes came from somewhere else.
    """
    fetched, wanted = run["device_bytes"], run.get("to_fetch_bytes", run["bytes_read"])
    if fetched is None:
        return _at_least("device_bytes", None, limits.device_bytes_min, "/proc/self/io is not readable")
    if wanted is None:
        why = "what the files have on the device is unknown: they are compressed, or their file system lists no extents"
        return _at_least("device_bytes", None, limits.device_bytes_min, why)
    counts = {"the process fetched": fetched}
    if (name := run.get("device")) and (count := run.get("device_read_bytes")) is not None:
        counts[f"{name} gave"] = count
    if (name := run.get("lowest_device")) and (count := run.get("lowest_read_bytes")) is not None:
        counts[f"{name} below it gave"] = count
    least = min(counts.values())
    words = [f"{what} {count / 1e6:.1f} MB" for what, count in counts.items() if count in (fetched, least)]
    message = f"{', '.join(words)} for {wanted / 1e6:.1f} MB that the files have on the disk, without holes"
    return _at_least("device_bytes", least / wanted if wanted else 0.0, limits.device_bytes_min, message)


def from_memory(run: Run, limits: Limits) -> Check:
    """Hold when next to nothing of what the pipeline read was fetched from the device."""
    fetched, read = run["device_bytes"], run["bytes_read"]
    if fetched is None:
        return _at_most("from_memory", None, limits.resident_max, "/proc/self/io is not readable")
    amounts = f"{fetched / 1e6:.1f} MB came from the device for {read / 1e6:.1f} MB read"
    message = f"{amounts} (at most {limits.resident_max:.2%})"
    return _at_most("from_memory", fetched / read if read else 0.0, limits.resident_max, message)


def same_data(run: Run, _limits: Limits) -> Check:
    """Hold when the files were what their list says, before the run and after it, and as many bytes were read."""
    changed, read = run["changed_files"], run["bytes_read"]
    listed = run.get("bytes_predicted", run["listed_bytes"])
    whole = run["images"] == run["images_asked"] and not run["image_errors"]
    of = "its loads ask for" if "bytes_predicted" in run else "the manifest lists"
    message = f"{read:,} bytes were read of the {listed:,} that {of}"
    if changed:
        names = ", ".join(run["changed"])
        more = f" and {changed - len(run['changed'])} more" if changed > len(run["changed"]) else ""
        message = f"{changed} files changed since the manifest listed them: {names}{more}"
    passed = not changed and (read == listed or not whole)
    return _check("same_data", passed, read, listed, message)


def unthrottled(run: Run, limits: Limits) -> Check:
    """Hold when no quota of a control group held the run back, and it came near to no limit on reads and writes."""
    quota = [_within_quota(run, limits)] if "throttled_s" in run else []
    return min([*quota, _within_io_limits(run, limits)], key=lambda check: _ORDER.index(check["passed"]))


def _within_quota(run: Run, limits: Limits) -> Check:
    share = run["throttled_s"] / run["elapsed_s"]
    message = (
        f"a quota of {run['quota_cores']:.2g} cores was used up in {run['throttled_periods']} periods:"
        f" threads waited {run['throttled_s']:.2f} s"
    )
    return _at_most("unthrottled", share, limits.throttled_max, message)


def _within_io_limits(run: Run, limits: Limits) -> Check:
    share, message = delays.nearest_limit(run) or (0.0, "no control group has a limit on reads and writes")
    if share <= limits.io_limit_max and run.get("io_limits_hidden"):
        hidden = "control groups above may have limits on reads and writes that cannot be seen from here"
        return _at_most("unthrottled", None, limits.io_limit_max, hidden)
    return _at_most("unthrottled", share, limits.io_limit_max, message)


def undelayed(run: Run, limits: Limits) -> Check:
    """Hold when threads that had work could do it: none slept, or was held by another program, and none was stopped.

    By looks at them at moments of chance. The share is what is certain after so many looks; where even a delay at each
    of them would not make it larger than the limit, or the threads cannot be seen, the machine cannot tell.
    """
    error, share = run["waits"]["error"], delays.delayed_share(run)
    unknown = error or delays.most_certain(run) <= limits.delayed_max < 1
    message = f"what threads wait for cannot be seen: {error}" if error else delays.delays(run)
    return _at_most(
        "undelayed", None if unknown and share <= limits.delayed_max else share, limits.delayed_max, message
    )


def unstolen(run: Run, limits: Limits) -> Check:
    """Hold when the hypervisor of a virtual machine gave next to all of the processors' time that was asked for."""
    stolen_s = run["steal_s"]
    message = f"the hypervisor took {stolen_s:.2f} s of the processors in {run['elapsed_s']:.2f} s"
    share = stolen_s / run["elapsed_s"] if stolen_s > _NEGLIGIBLE_CPU_S else 0.0
    return _at_most("unstolen", share, limits.stolen_max, message)


def complete(run: Run, _limits: Limits) -> Check:
    """Hold when every image asked for was delivered and none was dropped; of a baseline, when every byte was moved."""
    if "images" not in run:
        moved = run["bytes_written" if "bytes_written" in run else "bytes_read"]
        asked = run["bytes_asked"]
        message = f"{moved / 1e6:.1f} of {asked / 1e6:.1f} MB moved in {run['requests']} requests"
        return _check("complete", moved == asked, moved, asked, message)
    delivered, asked, errors = run["images"], run["images_asked"], run["image_errors"]
    message = f"{delivered} of {asked} images delivered"
    if errors:
        names = [bad["file"] for bad in run["unreadable"][:_SHOWN_NAMES]]
        more = f" and {errors - len(names)} more" if errors > len(names) else ""
        message += f", {errors} unreadable: {', '.join(names)}{more}"
    passed = delivered == asked and not errors
    return _check("complete", passed, delivered, asked, message)


def reached_device(run: Run, limits: Limits) -> Check:
    """Hold when what was written came to the device, in the time in which it was flushed.

    By the counter of what holds the file, which counts everybody's bytes, else by the kernel's account of our own.
    """
    reached, asked = run["reached_bytes"], run["bytes_written"]
    if reached is None and "objects" not in run:  # what a client of an object store has written is on a network
        reached = run["written_bytes"]
    least = _least_of_objects(limits) if "objects" in run else limits.device_bytes_min
    if reached is None:
        return _at_least("reached_device", None, least, "no counter tells what was written")
    message = f"{reached / 1e6:.1f} MB came to the device for {asked / 1e6:.1f} MB written"
    return _at_least("reached_device", reached / asked, least, message)


def time_adds_up(run: Run, limits: Limits) -> Check:
    """Hold when the separately measured parts make up the wall time, by a clock that goes as the others do.

    The kernel's own clock shows a library that replaces the clock of the run; that of the hardware a clock that
    adjtimex(2) makes faster or slower for all programs.
    """
    figures: Mapping[str, Any] = run
    parts = sum(figures[part] for part in run["wall_parts"])
    wall = run["wall_s"]
    gap = abs(wall - parts)
    error = gap / wall if wall and gap > _NEGLIGIBLE_GAP_S else 0.0
    message = f"parts {parts:.4f} s, wall {wall:.4f} s"
    for clock, whose in (("kernel_s", "the kernel's"), ("raw_s", "the hardware's")):
        other = figures.get(clock) or run["elapsed_s"]
        gained = abs(run["elapsed_s"] - other)
        if gained > _NEGLIGIBLE_CLOCK_S and gained / other > limits.time_error_max:
            error = max(error, gained / other)
            message += f"; the clock of the run counted {run['elapsed_s']:.4f} s where {whose} counted {other:.4f} s"
    return _at_most("time_adds_up", error, limits.time_error_max, message)


def quiet(run: Run, limits: Limits) -> Check:
    """Hold when nobody else used the device or the processors during the run.

    Judged over the run itself, not by the load average before it, which after the first run is mostly our own. What it
    takes to serve an emulated storage is no other's either, and is allowed for.
    """
    other_cpu, others = run["other_cpu"], neighbours.others(run)
    most_cpu = limits.other_cpu_max + serving_s(run) / run["elapsed_s"]
    loud = others is not None and others.share > limits.other_device_max
    busy = other_cpu * run["elapsed_s"] > _NEGLIGIBLE_CPU_S and other_cpu > most_cpu
    passed = False if loud or busy else None if others is None else True
    took = (
        f"{others.message} (at most {limits.other_device_max:.0%})"
        if others
        else "used the device to an unknown extent"
    )
    kept = f"kept {other_cpu:.2f} cores busy (at most {round(most_cpu, 2):g})"
    first, then = (kept, took) if busy and not loud else (took, kept)
    observed = {"other_device": others.share if others else None, "other_cpu": other_cpu}
    limit = {"other_device": limits.other_device_max, "other_cpu": most_cpu}
    return _check("quiet", passed, observed, limit, f"others {first} and {then}")


def serving_s(run: Run) -> float:
    """Return the CPU seconds that emulated storages took: their models' servers by their own account, and the kernel.

    What the kernel takes for a request and for a GB was measured where they are; a storage that says nothing took none.
    """
    return sum(did["cpu_s"] + _of_kernel_s(did) for did in run.get("served", {}).values())


def _of_kernel_s(did: Mapping[str, float]) -> float:
    requests = (did["reads"] + did["writes"]) * did.get("request_cpu_s", 0.0)
    moved = sum(did[f"{what}_bytes"] / 1e9 * did.get(f"{what}_gb_cpu_s", 0.0) for what in ("read", "written"))
    return requests + moved


def finite_loss(run: Run, _limits: Limits) -> Check:
    """Hold when every step of a training has a loss; one that is infinite or no number is recorded as None."""
    lost, last = run["steps"]["lost_loss"], run["steps"]["last_loss"]
    message = f"step {lost}: the loss is no finite number" if lost else f"the last loss is {last:.3g}"
    return _check("finite_loss", lost is None, lost, None, message)


def checkpoints_durable(run: Run, _limits: Limits) -> Check:
    """Hold when every snapshot asked for was read back as it was written, and its bytes came to its devices.

    Of each device: bytes written by everybody as a share of those of the snapshots that went there, once or, where it
    is both sides of a burst buffer or holds the other side's image, twice.
    """
    asked, lines = run["checkpoints_asked"], run["checkpoints"]
    verified = sum(line["verified"] for line in lines)
    written = {target["source"]: target["written_bytes"] for target in run["targets"]}
    wanted = {s: sum(t["bytes"] for t in run["targets"] if s in (t["source"], *t.get("below", ()))) for s in written}
    shares = {s: count / wanted[s] for s, count in written.items() if count is not None and wanted[s]}
    short = verified < max(1, asked) or min(shares.values(), default=1.0) < 1
    passed = False if short else True if len(shares) == len(written) else None
    told = [f"{(written[s] or 0) / 1e6:.1f} MB written to {s} for {wanted[s] / 1e6:.1f} MB" for s in shares]
    told += [f"bytes written for {t['storage']} unknown" for t in run["targets"] if t["source"] not in shares]
    message = f"{verified} of {asked} snapshots read back on {run['targets'][-1]['storage']}"
    observed = {"verified": verified, "written_share": min(shares.values(), default=None)}
    words = ", ".join([message, *told, *run["checkpoint_troubles"]])
    return _check("checkpoints_durable", passed, observed, {"verified": asked, "written_share": 1.0}, words)


def profile_complete(run: Run, _limits: Limits) -> Check:
    """Hold when the profile dropped nothing, saw all reads that the kernel counted and kept those of the run's data."""
    found, read = run["profile"], run.get("bytes_read") or 0
    seen, counted, blind = found["seen_read_bytes"], found["kernel_read_bytes"], found["blind_spot"]
    kept = found["bytes_read"]
    lacks = kept < _PROFILED_MIN * read  # mapped files and living children are in no count of this process
    passed = None if counted is None and not found["dropped"] and not lacks else blind is None and not lacks
    message = (
        f"the profile has {kept / 1e6:.1f} MB of the {read / 1e6:.1f} MB that the run read"
        if lacks and not found["dropped"]
        else blind or f"{seen / 1e6:.1f} MB seen of {(counted or 0) / 1e6:.1f} MB that the kernel counted"
    )
    if found["dropped"] and found["mode"] == "trace":
        message += ": profile.posix=counters"
    return _check("profile_complete", passed, seen, counted, message)


def unspoiled(run: Run, _limits: Limits) -> Check:
    """Hold when no request of an emulated storage was given a fault: it would be part of the figure."""
    spoiled = {name: count for name, did in run["served"].items() if (count := int(did.get("spoiled", 0)))}
    told = [f"the model of {name} was given faults for {count:,} requests" for name, count in spoiled.items()]
    return _at_most("unspoiled", sum(spoiled.values()), 0, "; ".join(told) or "no model was given faults")


def _as_expected(rule: str, each: Expectation) -> Check:
    """Hold when a run did what its benchmark says it was to do."""
    passed = None if each["found"] is None else each["found"] == each["expected"]
    return _check(rule, passed, None, None, each["message"])


def below_peak(run: Run, peak: Peak, limits: Limits) -> Check:
    """Hold when the bytes of a cold run did not come faster than its storage gives them (paper, Table I).

    It fails only above what an honest run can reach: above the ceiling and what chance adds to it. Between the two, and
    where nothing bounds so many readers, the machine cannot tell.
    """
    rate, known, ceiling = run["read_mb_per_s"], peak["mb_per_s"], peak["ceiling_mb_per_s"]
    message = f"{rate:.1f} MB/s, and its storage gives {known:.1f} MB/s by itself ({peak['by']})"
    found = _at_most("below_peak", rate / known, limits.peak_max, message)
    if found["passed"]:
        return found
    if ceiling is None:
        return found | {"passed": None, "message": f"{message} to one reader; benchmark.access=random_read would tell"}
    most = limits.peak_max * ceiling * (1 + _chance(peak["reads"], run.get("images")))
    message = f"{message}; an honest run reads at most {most:.1f} MB/s"
    return found | {"passed": None if rate <= most else False, "message": message}


def _chance(*reads: int | None) -> float:
    """Return by which share the ratio of two rates is larger by chance at most: rates of so many reads each.

    Runs of one seed read in one order and share its luck, so that several of them count as one.
    """
    return _CERTAIN * math.sqrt(sum(1 / count for count in reads if count))


def same_conditions(run: Run, first: Conditions | None) -> Check:
    """Hold when nothing else that can change the speed is otherwise than in the first run, nor changed in this one."""
    now = run["conditions"]
    during = _differences(now, run.get("conditions_after", now))
    apart = _differences(first or now, now)
    words = [f"{each} at the end of the run" for each in during] + [f"{each} in this run" for each in apart]
    message = "; ".join(words) or f"{len(_named(now))} conditions are those of the first run that counts"
    return _at_most("same_conditions", len(words), 0, message)


def _named(conditions: Conditions) -> dict[str, Any]:
    """Return conditions by what they are called: those of a storage have its name, too."""
    named = conditions["process"] | conditions["machine"]
    storages = conditions["storages"].items()
    return named | {f"{name} of {storage}": fact for storage, facts in storages for name, fact in facts.items()}


def _differences(conditions: Conditions, others: Conditions) -> list[str]:
    if conditions == others:
        return []
    before, now = _named(conditions), _named(others)
    names = [name for name in dict.fromkeys([*before, *now]) if before.get(name) != now.get(name)]
    return [f"{name} was {before.get(name, 'unset')}, and is {now.get(name, 'unset')}" for name in names]


def spread(rates: Sequence[float], limits: Limits) -> Check:
    """Hold when the measured runs of a cell agree: (max - min) / median of their rates."""
    if len(rates) <= 1:
        message = "only 1 valid measured run" if rates else "no valid measured run"
        return _at_most("spread", None, limits.spread_max, message)
    observed = (max(rates) - min(rates)) / statistics.median(rates)
    message = f"(max - min) / median of {len(rates)} measured runs is {observed:.2%} (at most {limits.spread_max:.2%})"
    return _at_most("spread", observed, limits.spread_max, message)
