"""Records of `hepcnn` as the campaign writes them."""

from tests.analysis.record_factory import id_of, record, run

KEYS = {"name": "hepcnn", "shuffle": "local", "epochs": 5, "control": "none", "readers": 1, "width": 1.0,
        "learning_rate": 1e-3, "dropout": 0.5}  # fmt: skip
COLD_S, WARM_S = 0.4, 0.1


def _training(name, figures, several, **settings):
    """Return a done record of a training of 512 images with these figures."""
    wanted = {"images": 512, "images_asked": 512, "timelog": None, "trace": None}
    runs = [run(number, 512 / figures["wall_s"], **figures, **wanted) for number in range(1, 6)]
    made = record(runs, **several, **settings)
    merit = {"kind": "training", "data": "hdf5", "figure": "wall_s", "unit": "s", "better": "lower"}
    made["cell"] |= {"benchmark": name, "id": id_of(made).replace("micro-demo", name)} | merit
    return made


def climate(files, load_s, *, nodes=2, sync="barrier", **settings):
    """Return a done record of CDB on so many nodes, which waits so long for its input in 10 s."""
    figures = {"load_s": load_s, "compute_s": 9.0 - load_s, "validate_s": 0.5, "sync_s": 0.5, "wall_s": 10.0}
    own = {"name": "climate", "control": "none"}
    settings |= {"benchmark": own, "dataset__files": files}
    several = {"nodes": nodes, "sync": sync} if nodes > 1 else {}
    made = _training("climate", figures, several, **settings)
    made["dataset"]["checksum"] = f"{files:064d}"
    return made


def hepcnn(nodes, shuffle, cold, *, private=1, slower=1.0, **settings):
    """Return a done record of so many nodes: 40 loads in all, so many of them cold."""
    read_s = (cold * COLD_S + (40 - cold) * WARM_S) / nodes * slower
    parts = {"load_s": read_s + 1.0, "read_s": read_s, "compute_s": 80.0 / nodes, "validate_s": 0.5, "sync_s": 0.5,
             "checkpoint_s": 0.0, "other_s": 0.1}  # fmt: skip
    loads = {"loads": 40, "train_cold_loads": cold, "train_warm_loads": 40 - cold, "validation_cold_loads": 0,
             "validation_warm_loads": 0, "train_cold_read_s": COLD_S, "train_warm_read_s": WARM_S}  # fmt: skip
    wall_s = sum(parts.values()) - read_s
    figures = {**parts, **loads, "wall_s": wall_s, "private_caches": private}  # fmt: skip
    several = {"nodes": nodes, "sync": "barrier"} if nodes > 1 else {}
    own = KEYS | {"shuffle": shuffle, "epochs": settings.pop("epochs", 5)}
    made = _training("hepcnn", figures, several, benchmark=own, **settings)
    for name in ("threads", "prefetch", "iterations"):
        made["cell"]["settings"].pop(name)
    return made
