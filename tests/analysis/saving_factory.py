"""Records of trainings that save snapshots as the campaign writes them."""

from tests.analysis.record_factory import scattered
from tests.analysis.training_factory import step, training

HOW = {"every": 20, "keep": 5, "mode": "sync", "in_flight": 1}
# Of all devices, though one may be both sides of a burst buffer.
WRITTEN = {"storage": "ssd", "bytes": 100, "written_bytes": 500}
DRAIN = {"bandwidth_mb_per_s": None, "streams": 1}


def node(target, **how):
    """Return the settings of a target: `none`, a storage, or a burst buffer as `optane to hdd`."""
    if target == "none":
        return {"name": "none"}
    fast, _, slow = target.partition(" to ")
    if not slow:
        return {"name": fast, "root": f"/{fast}", **HOW, **how}
    sides = {"fast": {"name": fast, "root": f"/{fast}"}, "slow": {"name": slow, "root": f"/{slow}"}}
    return {"name": "burst_buffer", **sides, **HOW, **DRAIN, **how}


def snapshots(run, *times):
    """Return the five lines of a run; of the middle one of each time three runs have what is given as their median."""
    blocked_s, durable_fast_s, durable_slow_s = (time and scattered(time)[(run - 1) % 3] for time in times)
    lines = []
    for number in range(5):
        more = (number - 2) * 0.01
        times = {"blocked_s": blocked_s, "durable_fast_s": durable_fast_s, "durable_slow_s": durable_slow_s}
        line = {name: value and value + more for name, value in times.items()}
        lines.append(
            {
                "step": 20 * (number + 1),
                "write_s": durable_fast_s,
                "drain_s": 1.0,
                "exposed_s": 0.0,
                "verified": True,
                **line,
            }
        )
    return lines


def saved(target, runtimes, times=(1.0, 1.0, 1.0), sources=None, below=None, **settings):
    """Return a done record whose runs took these runtimes, and a snapshot these seconds (blocked, durable, drained).

    `sources` and `below` are the counters of each role of its target: of its device, and of those that lies on.
    """
    how = {key: settings.pop(key) for key in list(settings) if key in HOW or key in DRAIN}
    roles = ("fast", "slow") if " to " in target else ("only",)
    targets = [{"role": role, "source": (sources or {}).get(role), **WRITTEN} for role in roles]
    targets = [each | ({"below": below[each["role"]]} if each["role"] in (below or {}) else {}) for each in targets]
    runs = []
    for number, runtime in enumerate(runtimes, 1):
        lines = (
            {}
            if target == "none"
            else {
                "checkpoints": snapshots(number, *times),
                "targets": targets,
                "checkpoints_asked": 5,
                "checkpoint_troubles": [],
            }
        )
        runs.append(step(number, runtime, **lines))
    return training(runs, checkpoint=node(target, **how), storage="ssd", threads=8, **settings)


def paper_like(**settings):
    """Return the four targets of the paper and the training without any."""
    took = {"hdd": 5.3, "ssd": 3.6, "optane": 1.4, "optane to hdd": 1.45}
    made = [saved("none", [150.0, 150.4, 150.8], **settings)]
    for target, one in took.items():
        slow = one + 5.0 if " to " in target else one
        made.append(saved(target, [150.2 + 5 * one + more for more in (0.0, 0.3, 0.5)], (one, one, slow), **settings))
    return made
