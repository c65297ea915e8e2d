"""Records of the mini-application as the campaign writes them, made from the example that holds the contract."""

from analysis.figures.all import chart_specs
from analysis.frames import frames_of_records
from tests.analysis.record_factory import id_of, of_benchmark, parse, record, run

BENCHMARK = {
    "name": "alexnet", "image_size": 224, "ignore_errors": True, "autotune": False, "map_and_batch_fusion": False,
    "deterministic": True, "private_threads": None, "prefetch_to_device": False, "control": "none", "width": 1.0,
    "learning_rate": 1e-4, "dropout": 0.5,
}  # fmt: skip


def step(number, wall_s, *, load_s=1.0, images=9088, **keys):
    """Return a valid measured run of the mini-application that took and waited so many seconds."""
    figures = {
        "wall_s": wall_s, "load_s": load_s, "compute_s": max(0.0, wall_s - load_s - 0.5), "other_s": 0.1,
        "startup_s": 0.4, "bytes_read": images * 14_000,
        "images": images, "images_asked": images, "accelerator": "cpu", "parameters": 58_000_000,
        "steps": {"file": f"run-{number}.npz", "number": 2, "first_load_s": load_s / 2, "last_loss": 4.5,
                  "lost_loss": None},
        "checkpoint_s": 0.0,
        "build_s": 0.3, "state_bytes": 7, "trace": None,
    }  # fmt: skip
    return run(number, images / wall_s, size=14_000, **(figures | keys))


def training(runtimes, *, prefetch=1, load_s=1.0, step_s=None, limit=0.04, size=None, control="none", **settings):  # noqa: PLR0913 - what a cell is
    """Return a done record with measured runs of these runtimes in seconds (or these runs)."""
    accelerator = {"name": "emulated" if step_s else "auto", "step_s": step_s}
    really = {"accelerator": "emulated"} if step_s else {}
    runs = [it if isinstance(it, dict) else step(n, it, load_s=load_s, **really) for n, it in enumerate(runtimes, 1)]
    whole = {"benchmark": BENCHMARK | {"control": control}, "accelerator": accelerator, "iterations": 142}
    benchmark = {name: settings.pop(name) for name in list(settings) if name.startswith("benchmark__")}
    made = record(runs, prefetch=prefetch, limit=limit, **(whole | settings))
    for name, value in benchmark.items():
        made["cell"]["settings"]["benchmark"][name.partition("__")[2]] = value
    of_benchmark(made, "alexnet", id_of(made).replace("micro-demo", f"alexnet-{control}"))
    made["campaign"]["size"] = size
    return made


def grid(storages=("hdd", "ssd", "lustre"), threads=(1, 2, 4, 8), **settings):
    """Return cells whose runtime with prefetch is 180 s, and without it longer by the seconds that input takes."""
    wait = {"hdd": 60.0, "ssd": 20.0, "lustre": 30.0}
    return [
        training(
            [base, base + 0.5, base + 1.0],
            threads=n, storage=storage, prefetch=prefetch, load_s=0.0 if prefetch else wait.get(storage, 9) / n,
            **settings,
        )
        for storage in storages
        for n in threads
        for prefetch in (1, 0)
        for base in [180.0 + (0 if prefetch else wait.get(storage, 9) / n)]
    ]  # fmt: skip


def with_traces(made, folder, text=None, **shape):
    """Give each measured run of a record this trace, or one of its own, in the record's folder; return the record."""
    place = folder / "records" / id_of(made)
    place.mkdir(parents=True, exist_ok=True)
    for each in made["runs"]:
        name = f"trace-{each['run']}.csv"
        each["trace"] = {"file": name, "interval_s": 1.0, "samples": 9, "cpu_s": 0.1, "sources": {"dsk/vda": "ok"}}
        (place / name).write_text(text or trace_text(shift=each["run"], **shape), encoding="utf-8")
    return made


def trace_text(rates=(5e6, 7e6, 2e6), tail=(), *, shift=0.0, device="dsk/vda"):
    """Return a trace of these bytes read in each second and `shift` more; the process reads half of it."""
    read = [rate + shift for rate in (*rates, *tail)]
    own = [(rate, 0) if device else ("", "") for rate in read]
    return trace_of({device or "dsk/vda": own, "process": [(rate / 2, 0) for rate in read]}, len(tail))


def trace_of(sources, tail=0):
    """Return a trace of sources, each with what was read and written in each second, the last `tail` in the tail."""
    header = [["epoch", "elapsed", *(part for name in sources for part in (name, "")), "phase"]]
    header.append(["epoch", "s", *["read", "writ"] * len(sources), "phase"])
    seconds = list(zip(*sources.values(), strict=True))
    rows = [[1e9, 0, *[""] * (2 * len(sources)), "iteration"]]
    for second, each in enumerate(seconds, 1):
        phase = "tail" if second > len(seconds) - tail else "iteration"
        rows.append([1e9 + second, second, *(value for both in each for value in both), phase])
    lines = [",".join(f'"{name}"' for name in each) for each in header]
    return "\n".join([*lines, *(",".join(map(str, row)) for row in rows)]) + "\n"


def frames(*made, folder=None):
    """Return the medians, the runs and the folders of records."""
    homes = {id_of(each): folder / "records" / id_of(each) if folder else None for each in made}
    return *frames_of_records([parse(each) for each in made]), homes


def table_of(*made):
    return frames(*made)[0].set_index("cell")


def row_of(made, *others):
    """Return the medians of a record's cell, beside other cells."""
    return table_of(made, *others).loc[id_of(made)]


def figures_of(*made, folder=None):
    """Return the specs of records by file name."""
    return {spec.stem: spec for spec in chart_specs(*frames(*made, folder=folder))}


def drawn(kind, *made):
    """Return the specs of one kind of figure, by the beginning of their file names."""
    return [spec for stem, spec in figures_of(*made).items() if stem.startswith(kind)]


def words(figure):
    """Return every text of a figure."""
    return [text.get_text() for text in figure.findobj(lambda each: hasattr(each, "get_text")) if text.get_text()]
