"""The checks that a run must pass before its metrics count; pure functions of the raw metrics.

A check is a dict ``{rule, passed, observed, limit, message}``; `passed` is None if the machine cannot tell.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from jobs import disturbances, program_checks
from jobs.model.conduct import Limits as Limits  # noqa: PLC0414 - `checks.Limits`
from jobs.model.results import Check, Conditions, Expectation, Peak, Run
from jobs.objects import STORES
from jobs.program_checks import at_least as _at_least
from jobs.program_checks import at_most as _at_most
from jobs.program_checks import outcome as _check

Rule = Callable[[Run, Limits], Check]
_SHOWN_NAMES = 3
_ORDER = (False, None, True)  # the results of checks, the worst first
_NEGLIGIBLE_GAP_S = 0.005  # between two parts of a step the kernel may give one time slice to another thread
_NEGLIGIBLE_CLOCK_S = 0.002  # two clocks cannot be read at one moment, least of all on a busy machine
# For objects: the last bytes that their servers fetched are in caches that nobody here can empty.
_OF_OBJECTS_MIN = 0.9
_PROFILED_MIN = 0.99  # as for the kernel's count: jobs/events/posix_window.py
# Standard deviations, each as large as the mean time of a read: half a turn of a disk has 0.58 of its mean.
_CERTAIN = 3
# Mean lateness as a share of a step: as much as the utilisation of an accelerator may be wrong by.
_LATE_MAX = 0.01
LEAST_OF_CLIENT = 98.0
"""The utilisation in percent of accelerators whose batches come from memory, if the client is not their limit."""
_LEAST_SHARE = 0.01  # of the time, that is left
_NEGLIGIBLE_CPU_S = 0.05  # /proc/stat counts in ticks of 10 ms: a few of them are no second user of a short run


def may_client_starve(au_percent: float, cpu_wait_percent: float, minimum: float) -> bool:
    """Return whether an accelerator misses its minimum (percent), and would not if its threads had had processors."""
    return au_percent < minimum <= au_percent / max(_LEAST_SHARE, 1 - cpu_wait_percent / 100)


def rate(run: Mapping[str, Any]) -> float | None:
    """Return the rate of a run, whose spread over the runs of a cell is checked; None for a run without metrics."""
    return run[run["rate"]["key"]] if "rate" in run else None


def unit(run: Mapping[str, Any]) -> str:
    """Return the unit of the rate of a run; empty if it has none."""
    return str(run["rate"]["unit"]) if "rate" in run else ""


def judge(
    run: Run, cache: str, limits: Limits, peak: Peak | None = None, first: Conditions | None = None
) -> tuple[list[Check], str | None]:
    """Return the checks of one run, and the reason why the run does not count (None for a valid run).

    `cache` is the required state of the page cache, ``cold``, ``warm`` or ``as_is``; `peak` the peak speed of its
    storage; `first` the conditions of the first valid run of its cell.
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
    others: dict[Rule, bool] = {
        program_checks.reads_data: is_program and cache == "cold",
        complete: "images" in run or "bytes_asked" in run,
        program_checks.unchanged if is_program else same_data: reads,
        time_adds_up: True,
        quiet: True,
        unthrottled: "throttled_s" in run or bool(run.get("io_limits") or run.get("io_limits_hidden")),
        unstolen: "steal_s" in run,
        undelayed: "waits" in run and not is_program,  # the threads of a program cannot be seen
        on_time: "accelerators" in run,
        finite_loss: "last_loss" in run.get("steps", {}),
        checkpoints_durable if "checkpoints" in run else reached_device: "checkpoints" in run or "reached_bytes" in run,
        profile_complete: "profile" in run,
        unspoiled: any("spoiled" in server for server in run.get("served", {}).values()),
    }
    rules = [*proofs[cache], *(rule for rule, applies in others.items() if applies)]
    checks = [rule(run, limits) for rule in rules]
    checks += [_as_expected(rule, each) for rule, each in run.get("expected", {}).items()]
    checks += [below_peak(run, peak, limits)] if peak and cache == "cold" else []
    checks += [same_conditions(run, first)] if "conditions" in run else []
    failed = [check for check in checks if check["passed"] is False]
    proved = checks[: len(proofs[cache])]
    if not failed and proved and "objects" not in run and all(check["passed"] is None for check in proved):
        failed = proved  # one of them is enough; with none, the state of the cache is not proved
    return checks, _reason(failed)


def _reason(failed: Sequence[Check]) -> str | None:
    return "; ".join(f"{check['rule']}: {check['message']}" for check in failed) or None


def _judge_together(
    run: Run, cache: str, limits: Limits, peak: Peak | None, first: Conditions | None
) -> tuple[list[Check], str | None]:
    """Return the checks of a run of several ranks: the worst result of each rule, then the checks over all ranks."""
    each = [judge(cast("Run", rank["figures"]), cache, limits, peak) for rank in run["ranks"]]
    ranks = [(f"rank {index}", checks) for index, (checks, _) in enumerate(each)]
    shared = [
        (f"ranks {', '.join(map(str, indices))} together", _of_shared_device(run, indices, which, limits))
        for which in (("device", "device_read_bytes"), ("lowest_device", "lowest_read_bytes"))
        for indices in (_sharing(run, which[0]) if cache == "cold" else ())
    ]
    if peak and cache == "cold" and [[*range(len(ranks))]] == _sharing(run, "device"):
        shared.append(("all ranks together", [_below_peak_together(run, peak, limits)]))
    if "conditions" in run:
        shared.append(("all ranks together", [same_conditions(run, first)]))
    rules = dict.fromkeys(check["rule"] for _, checks in ranks for check in checks)
    over_ranks = [began_together(run, limits)]
    bad = [f"rank {index}: {why}" for index, (_, why) in enumerate(each) if why]
    more = f" (and {len(bad) - 1} more ranks)" if len(bad) > 1 else ""
    apart = [f"{who}: {why}" for who, checks in shared if (why := _failed(checks))]
    reasons = [*(f"{why}{more}" for why in bad[:1]), *apart, _failed(over_ranks) or ""]
    return [*(_worst(rule, [*ranks, *shared]) for rule in rules), *over_ranks], "; ".join(filter(None, reasons)) or None


def _failed(checks: Sequence[Check]) -> str | None:
    return _reason([check for check in checks if check["passed"] is False])


def _worst(rule: str, judged: Sequence[tuple[str, Sequence[Check]]]) -> Check:
    """Return the worst result of a rule (failed, else unverifiable, else passed), with the rank that has it."""
    results = [(who, check) for who, checks in judged for check in checks if check["rule"] == rule]
    who, check = min(results, key=lambda each: _ORDER.index(each[1]["passed"]))
    return {**check, "message": f"{who}: {check['message']}"}


def _sharing(run: Run, which: str) -> list[list[int]]:
    """Return groups of ranks (by index) that read from the same device of a machine; single ranks are left out."""
    devices: dict[tuple[Any, Any], list[int]] = {}
    for index, rank in enumerate(run["ranks"]):
        if name := rank["figures"].get(which):
            devices.setdefault((rank["host"], name), []).append(index)
    return [indices for indices in devices.values() if len(indices) > 1]


def _of_shared_device(run: Run, indices: Sequence[int], which: tuple[str, str], limits: Limits) -> list[Check]:
    """Return the check of the bytes of several ranks on one device against its counter, which sees all of them."""
    own: list[Mapping[str, Any]] = [run["ranks"][index]["figures"] for index in indices]
    counts, fetched = ([each.get(key) for each in own] for key in (which[1], "device_bytes"))
    file_bytes = [each.get("to_fetch_bytes", each["bytes_read"]) for each in own]
    if None in (*counts, *fetched, *file_bytes):  # each rank's own check says so
        return []
    together: Any = {"device_bytes": sum(filter(None, fetched)), "bytes_read": sum(filter(None, file_bytes))}
    together |= {which[0]: own[0][which[0]], which[1]: max(filter(None, counts), default=0)}
    return [device_bytes(together, limits)]


def _below_peak_together(run: Run, peak: Peak, limits: Limits) -> Check:
    """Return the check of all ranks against the peak; unverifiable if above, as more readers may be faster."""
    check = below_peak(run, peak, limits)
    if check["passed"]:
        return check
    return check | {"passed": None, "message": f"{check['message']} to the readers of one rank; there were more"}


def began_together(run: Run, limits: Limits) -> Check:
    """Return the check that all ranks began within the share of the wall time that its parts may miss."""
    skew, wall = run["start_skew_s"], run["wall_s"]
    if skew is None:
        return _at_most("began_together", None, limits.time_error_max, "a rank did not say when it began")
    message = f"all {len(run['ranks'])} ranks began within {skew * 1e3:.2f} ms, in a run of {wall:.4f} s"
    return _at_most("began_together", skew / wall if wall else 0.0, limits.time_error_max, message)


def cold(run: Run, limits: Limits) -> Check:
    """Return the check that next to none of the files were in memory just before the start."""
    resident, message = run["resident_fraction"], _residency(run["resident_fraction"])
    linked = run.get("linked_files")
    message += f"; {linked} names are hard links to files named before, and are read from memory" if linked else ""
    return _at_most("cold", resident, limits.resident_max, "; ".join([message, *run.get("below", [])]))


def cold_at_server(run: Run, limits: Limits) -> Check:
    """Return the check that the bytes of objects came from the disk of their servers; clients cache none.

    The bytes are compared with the counters of the disk and of the one below it, which count everybody, and with the
    servers' own counters: at most a tenth may be unexplained. Bytes that arrived and were not used count too. Without
    the servers' counters, others may have read from the disk; and snapshots that a drain reads back from servers on
    this machine cannot be told apart.
    """
    objects = run["objects"]
    expected_bytes, endpoint = max(run["bytes_read"], objects["bytes"]), objects["endpoint"]
    most = 1 - _least_of_objects(limits)
    disk, lowest = run.get("device"), run.get("lowest_device")
    stores = objects["servers"].get(STORES)
    counts = {disk: run.get("device_read_bytes"), lowest: run.get("lowest_read_bytes")}
    counts |= {STORES: stores["read_bytes"]} if disk and stores else {}
    counts_known = {name: count for name, count in counts.items() if name and count is not None}
    if not stores or not counts_known or not expected_bytes:
        hidden = f"what the servers of {endpoint} have in memory cannot be seen from here"
        message = f"{hidden}: the bytes may be from there (storage.device=… names their disk, where it is here)"
        return _at_most("cold", None, most, message)
    words = ", ".join(f"{name} gave {count / 1e6:.1f} MB" for name, count in counts_known.items())
    message = f"{words} for {expected_bytes / 1e6:.1f} MB of objects"
    unexplained = max(0.0, 1 - min(counts_known.values()) / expected_bytes)
    drained = any(target.get("served_here") for target in run.get("targets", ()))
    if (stores["read_bytes"] is None or drained) and unexplained <= most:
        hidden = f"others may have read that: what {STORES} itself read is hidden from this user (root may see it)"
        hidden = "snapshots that were read back from servers here may be part of it" if drained else hidden
        return _at_most("cold", None, most, f"{message}; {hidden}")
    return _at_most("cold", unexplained, most, message)


def _least_of_objects(limits: Limits) -> float:
    return min(_OF_OBJECTS_MIN, limits.device_bytes_min)


def warm(run: Run, limits: Limits) -> Check:
    """Return the check that nearly all of the files were in memory just before the start."""
    resident = run["resident_fraction"]
    return _at_least("warm", resident, 1 - limits.resident_max, _residency(resident))


def _residency(resident: float | None) -> str:
    if resident is None:
        return "the kernel does not tell this user what is in memory of another user's files"
    return f"{resident:.2%} of the pages were in memory before the start"


def device_bytes(run: Run, limits: Limits) -> Check:
    """Return the check that the bytes of the files came from their device, by all counters.

    A file has whole blocks there, without holes, and counts once whatever its names. The counters are those of the
    process, of the device and of the lowest one below it; the latter two count everybody, so fewer bytes mean another
    origin.
    """
    fetched, file_bytes = run["device_bytes"], run.get("to_fetch_bytes", run["bytes_read"])
    if fetched is None:
        return _at_least("device_bytes", None, limits.device_bytes_min, "/proc/self/io is not readable")
    if file_bytes is None:
        why = "what the files have on the device is unknown: they are compressed, or their file system lists no extents"
        return _at_least("device_bytes", None, limits.device_bytes_min, why)
    counts = {"the process fetched": fetched}
    if (name := run.get("device")) and (count := run.get("device_read_bytes")) is not None:
        counts[f"{name} gave"] = count
    if (name := run.get("lowest_device")) and (count := run.get("lowest_read_bytes")) is not None:
        counts[f"{name} below it gave"] = count
    least = min(counts.values())
    words = [f"{what} {count / 1e6:.1f} MB" for what, count in counts.items() if count in (fetched, least)]
    message = f"{', '.join(words)} for {file_bytes / 1e6:.1f} MB that the files have on the disk, without holes"
    return _at_least("device_bytes", least / file_bytes if file_bytes else 0.0, limits.device_bytes_min, message)


def from_memory(run: Run, limits: Limits) -> Check:
    """Return the check that next to nothing of the data read was fetched from the device."""
    fetched, read = run["device_bytes"], run["bytes_read"]
    if fetched is None:
        return _at_most("from_memory", None, limits.resident_max, "/proc/self/io is not readable")
    amounts = f"{fetched / 1e6:.1f} MB came from the device for {read / 1e6:.1f} MB read"
    message = f"{amounts} (at most {limits.resident_max:.2%})"
    return _at_most("from_memory", fetched / read if read else 0.0, limits.resident_max, message)


def same_data(run: Run, _limits: Limits) -> Check:
    """Return the check that the files matched their list before and after the run, and that all bytes were read."""
    changed, read = run["changed_files"], run["bytes_read"]
    expected_bytes = run.get("bytes_predicted", run["listed_bytes"])
    whole = run["images"] == run["images_asked"] and not run["image_errors"]
    of = "its loads ask for" if "bytes_predicted" in run else "the manifest lists"
    message = f"{read:,} bytes were read of the {expected_bytes:,} that {of}"
    if changed:
        names = ", ".join(run["changed"])
        more = f" and {changed - len(run['changed'])} more" if changed > len(run["changed"]) else ""
        message = f"{changed} files changed since the manifest listed them: {names}{more}"
    passed = not changed and (read == expected_bytes or not whole)
    return _check("same_data", passed, read, expected_bytes, message)


def unthrottled(run: Run, limits: Limits) -> Check:
    """Return the check that no CPU quota delayed the run, and that it stayed below all limits on reads and writes."""
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
    share, message = disturbances.nearest_limit(run) or (0.0, "no control group has a limit on reads and writes")
    if share <= limits.io_limit_max and run.get("io_limits_hidden"):
        hidden = "control groups above may have limits on reads and writes that cannot be seen from here"
        return _at_most("unthrottled", None, limits.io_limit_max, hidden)
    return _at_most("unthrottled", share, limits.io_limit_max, message)


def undelayed(run: Run, limits: Limits) -> Check:
    """Return the check that threads with work could run: not asleep, not held by other programs, not stopped.

    It uses samples of the threads at random times. The share is what is certain after that many samples; it is
    unverifiable if even a delay in every sample would stay within the limit, or if the threads cannot be seen.
    """
    error, share = run["waits"]["error"], disturbances.delayed_share(run)
    unknown = error or disturbances.most_certain(run) <= limits.delayed_max < 1
    message = f"what threads wait for cannot be seen: {error}" if error else disturbances.delays(run)
    return _at_most(
        "undelayed", None if unknown and share <= limits.delayed_max else share, limits.delayed_max, message
    )


def unstolen(run: Run, limits: Limits) -> Check:
    """Return the check that the hypervisor of a virtual machine took next to no processor time."""
    stolen_s = run["steal_s"]
    message = f"the hypervisor took {stolen_s:.2f} s of the processors in {run['elapsed_s']:.2f} s"
    share = stolen_s / run["elapsed_s"] if stolen_s > _NEGLIGIBLE_CPU_S else 0.0
    return _at_most("unstolen", share, limits.stolen_max, message)


def complete(run: Run, _limits: Limits) -> Check:
    """Return the check that every requested image was delivered; for a baseline, that every byte was moved."""
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
    """Return the check that the written bytes reached the device within the time of the flush.

    By the counter of the device of the file, which counts everybody, or else by the kernel's counter of our own writes.
    """
    reached, asked = run["reached_bytes"], run["bytes_written"]
    if reached is None and "objects" not in run:  # the writes of a client of an object store go to a network
        reached = run["written_bytes"]
    least = _least_of_objects(limits) if "objects" in run else limits.device_bytes_min
    if reached is None:
        return _at_least("reached_device", None, least, "no counter tells what was written")
    message = f"{reached / 1e6:.1f} MB came to the device for {asked / 1e6:.1f} MB written"
    return _at_least("reached_device", reached / asked, least, message)


def time_adds_up(run: Run, limits: Limits) -> Check:
    """Return the check that the separately measured parts add up to the wall time, by a correct clock.

    The kernel's clock reveals a library that replaces the clock of the run; the hardware's clock one that adjtimex(2)
    makes faster or slower for all programs.
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
    """Return the check that nobody else used the device or the processors during the run.

    The load average before the run is not used: after the first run it is mostly our own. The CPU time for serving an
    emulated storage is allowed for, too.
    """
    other_cpu, others = run["other_cpu"], disturbances.others(run)
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
    """Return the CPU seconds for serving emulated storages: those that their models count, and the kernel's part.

    The kernel's seconds per request and per GB were measured beforehand; a storage without such numbers counts as 0.
    """
    return sum(did["cpu_s"] + _of_kernel_s(did) for did in run.get("served", {}).values())


def _of_kernel_s(did: Mapping[str, float]) -> float:
    requests = (did["reads"] + did["writes"]) * did.get("request_cpu_s", 0.0)
    moved = sum(did[f"{what}_bytes"] / 1e9 * did.get(f"{what}_gb_cpu_s", 0.0) for what in ("read", "written"))
    return requests + moved


def on_time(run: Run, _limits: Limits) -> Check:
    """Return the check that emulated accelerators ended their steps at the deadlines, and that their times add up."""
    rows = run["accelerators"]
    share, worst = max((row["late_share"], row["accelerator"]) for row in rows)
    gap = max(abs(row["wall_s"] - sum(row[part] for part in run["wall_parts"])) / row["wall_s"] for row in rows)
    message = f"accelerator {worst} ended its steps {share:.2%} of a step late (at most {_LATE_MAX:.0%})"
    if gap > _LATE_MAX:
        message = f"the parts of the time of an accelerator differ from its time by {gap:.2%}"
    return _at_most("on_time", max(share, gap), _LATE_MAX, message)


def finite_loss(run: Run, _limits: Limits) -> Check:
    """Return the check that every step of a training has a loss; an infinite or invalid one is stored as None."""
    lost, last = run["steps"]["lost_loss"], run["steps"]["last_loss"]
    message = f"step {lost}: the loss is no finite number" if lost else f"the last loss is {last:.3g}"
    return _check("finite_loss", lost is None, lost, None, message)


def checkpoints_durable(run: Run, _limits: Limits) -> Check:
    """Return the check that every snapshot was read back correctly, and that its bytes reached its devices.

    Per device: all bytes written, as a share of the bytes of its snapshots; these count twice if the device holds both
    sides of a burst buffer, or an image of the other side.
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
    """Return the check that the profile dropped nothing, saw all reads of the kernel and kept the data's reads."""
    found, read = run["profile"], run.get("bytes_read") or 0
    seen, counted, blind = found["seen_read_bytes"], found["kernel_read_bytes"], found["blind_spot"]
    kept = found["bytes_read"]
    lacks = kept < _PROFILED_MIN * read  # this process counts neither mapped files nor running children
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
    """Return the check that no request of an emulated storage got an injected fault, which would affect the time."""
    spoiled = {name: count for name, did in run["served"].items() if (count := int(did.get("spoiled", 0)))}
    told = [f"the model of {name} was given faults for {count:,} requests" for name, count in spoiled.items()]
    return _at_most("unspoiled", sum(spoiled.values()), 0, "; ".join(told) or "no model was given faults")


def _as_expected(rule: str, each: Expectation) -> Check:
    """Return the check of an expectation that the benchmark itself states."""
    passed = None if each["found"] is None else each["found"] == each["expected"]
    return _check(rule, passed, None, None, each["message"])


def below_peak(run: Run, peak: Peak, limits: Limits) -> Check:
    """Return the check that a cold run did not read faster than its storage can (paper, Table I).

    It fails only above the largest honest rate: the ceiling, plus what chance adds. Between the peak and that, and
    without a ceiling for that many readers, the result is unverifiable.
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
    """Return the largest share by which chance can raise the ratio of two rates, given the number of reads of each.

    Runs with one seed read in the same order and share its luck, so several of them count as one.
    """
    return _CERTAIN * math.sqrt(sum(1 / count for count in reads if count))


def same_conditions(run: Run, first: Conditions | None) -> Check:
    """Return the check that no other condition that affects the speed differs from the first run, or changed."""
    now = run["conditions"]
    during = _differences(now, run.get("conditions_after", now))
    apart = _differences(first or now, now)
    words = [f"{each} at the end of the run" for each in during] + [f"{each} in this run" for each in apart]
    count = len(now["process"] | now["machine"]) + sum(map(len, now["storages"].values()))
    message = "; ".join(words) or f"{count} conditions are those of the first run that counts"
    return _at_most("same_conditions", len(words), 0, message)


def _named(conditions: Conditions) -> dict[str, Any]:
    """Return the conditions by name; a condition of a storage has its name added."""
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
    """Return the check that the rates of the measured runs of a cell agree: (max - min) / median."""
    if len(rates) <= 1:
        message = "only 1 valid measured run" if rates else "no valid measured run"
        return _at_most("spread", None, limits.spread_max, message)
    observed = (max(rates) - min(rates)) / statistics.median(rates)
    message = f"(max - min) / median of {len(rates)} measured runs is {observed:.2%} (at most {limits.spread_max:.2%})"
    return _at_most("spread", observed, limits.spread_max, message)
