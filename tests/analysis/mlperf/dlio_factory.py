"""Output folders of DLIO with known steps: a clock walks through loading, compute and barriers as DLIO's loop does.

The arithmetic is that of its statscounter. Versions 0 (for 0.5) and 1 record the nominal compute, the stamps of rank 0
alone, and samples/s of all steps over the whole block, and version 0 has the barrier inside a step. Version 2 counts
n - 2 steps, version 3 n - 1, over the time of AU.
"""

import json
from datetime import datetime, timedelta

START = datetime(2026, 7, 4, 5, 0, 0)  # noqa: DTZ001 - DLIO's stamps have no zone
LEFT_OUT = (0, 0, 2, 1)
FIRST_S, BETWEEN_S, LAUNCH_S, WARM_UP_S = 0.5, 0.001, 3.0, 1.0
KEYS = ("load", "proc", "compute", "au", "throughput")


def stamp(seconds):
    return (START + timedelta(seconds=seconds)).isoformat()


def dlio_run(  # noqa: PLR0913, C901 - what a run is made of
    folder, version=3, *, ranks=4, epochs=3, steps=40, batch=4, step_s=0.1, load=lambda rank, epoch: 0.002,
    slept=1.0, barrier=True, blocks=1, checkpoint_s=0.0, config=".hydra", minimum=0.9,
):  # fmt: skip
    """Write the folder of a run; `load` gives the seconds of loading, `slept` by how much a step is longer.

    Rank 0 alone saves a checkpoint after each block of odd epochs, for `checkpoint_s`, while the others go on.
    """
    outputs = [{"hostname": "node", "host_cpuinfo": {"flags": "a [1] [2]"}} for _ in range(ranks)]
    stamps = [{} for _ in range(ranks)]
    now, late_s = LAUNCH_S, 0.0
    for epoch in map(str, range(1, epochs + 1)):
        began = now
        for each, of_rank in zip(outputs, stamps, strict=True):
            each[epoch], of_rank[epoch] = {key: {} for key in KEYS}, {"start": stamp(now)}
        for block in (f"block{number}" for number in range(1, blocks + 1)):
            starts = [now + late_s * (rank == 0) for rank in range(ranks)]
            ends = [*starts]
            for each in outputs:
                each[epoch]["load"][block], each[epoch]["proc"][block], each[epoch]["compute"][block] = [], [], []
            for step in range(steps):
                left = [*ends]
                for rank in range(ranks):
                    ends[rank] += (load(rank, int(epoch)) if step else FIRST_S) + step_s * slept
                done = [max(ends)] * ranks if barrier else ends
                for rank, part in enumerate(each[epoch] for each in outputs):
                    part["load"][block].append(ends[rank] - left[rank] - step_s * slept)
                    part["compute"][block].append(step_s * (slept if version > 1 else 1))
                    part["proc"][block].append((done if version == 0 else ends)[rank] - left[rank])
                ends = [each + BETWEEN_S for each in done]
            for rank, (part, of_rank) in enumerate(zip((each[epoch] for each in outputs), stamps, strict=True)):
                block_s = ends[rank] - starts[rank]
                counted_s = block_s - part["proc"][block][0]
                part["au"][block] = 100 * sum(part["compute"][block][1:]) / counted_s
                rate = (steps - LEFT_OUT[version]) * batch / (counted_s if version > 1 else block_s)
                part["throughput"][block] = rate
                times = {"start": stamp(starts[rank]), "end": stamp(ends[rank]), "duration": f"{block_s:.2f}"}
                of_rank[epoch][block] = times
            now, late_s = max(ends) + 0.01, checkpoint_s * (int(epoch) % 2)
            stamps[0][epoch] |= (
                {f"ckpt{block[5:]}": {"start": stamp(now), "end": stamp(now + late_s)}} if late_s else {}
            )
        for of_rank in stamps:
            of_rank[epoch] |= {"end": stamp(now + WARM_UP_S * (version > 2)), "duration": f"{now - began:.2f}"}
        now += WARM_UP_S
    write(folder, outputs, stamps if version > 1 else stamps[:1], version, now, batch * steps * blocks)
    settings = {"reader": {"batch_size": batch}, "train": {"computation_time": step_s}, "metric": {"au": minimum}}
    if config:
        (folder / config).mkdir(exist_ok=True)
        lines = [f"  {part}:\n    {key}: {value}\n" for part, each in settings.items() for key, value in each.items()]
        (folder / config / "config.yaml").write_text("workload:\n  model: unet3d\n" + "".join(lines))
    return folder


def write(folder, outputs, stamps, version, end, samples):  # noqa: PLR0913, PLR0917 - as above
    """Write what DLIO writes, with the means that it publishes."""
    folder.mkdir(parents=True, exist_ok=True)
    epochs = [key for key in outputs[0] if key.isdecimal()]
    means = {
        key: [sum(sum(each[epoch][key].values()) / len(each[epoch][key]) for each in outputs) for epoch in epochs]
        for key in ("au", "throughput")
    }
    aus = [each / len(outputs) for each in means["au"]]
    metric = {
        "train_au_percentage": aus, "train_au_mean_percentage": sum(aus) / len(aus),
        "train_au_meet_expectation": "success" if sum(aus) / len(aus) >= 90 else "fail",
        "train_throughput_samples_per_second": means["throughput"],
        "train_throughput_mean_samples_per_second": sum(means["throughput"]) / len(aus),
        "save_checkpoint_io_mean_GB_per_second": float("nan"),
    }  # fmt: skip
    summary = {
        "start": stamp(0), "end": stamp(end), "num_accelerators": len(outputs), "num_hosts": 1, "metric": metric,
        "num_files_train": samples * len(outputs), "num_samples_per_file": 1, "epochs": len(aus),
    }  # fmt: skip
    (folder / "summary.json").write_text(json.dumps(summary, indent=4))
    for rank, each in enumerate(outputs):
        (folder / f"{rank}_output.json").write_text(json.dumps(each, indent=4))
    for rank, each in enumerate(stamps):
        name = f"{rank}_per_epoch_stats.json" if version > 1 else "per_epoch_stats.json"
        (folder / name).write_text(json.dumps(each, indent=4))


def edit(path, change):
    """Let a function change a JSON file."""
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))
