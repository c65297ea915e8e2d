"""Records of baselines as the campaign writes them, made from the example that holds the contract."""

from tests.analysis.record_factory import of_benchmark, record, run

OF_IMAGES = ("images", "images_asked", "image_errors", "unreadable", "images_per_s", "read_mb_per_s")


def given(number, mb_per_s, access="read", **keys):
    """Return a valid measured run of a baseline that read or wrote so fast."""
    made = {name: value for name, value in run(number, 1.0).items() if name not in OF_IMAGES}
    word = "write" if access == "write" else "read"
    figures = {
        f"{word}_mb_per_s": mb_per_s,
        "wall_s": 5016 / mb_per_s,
        "bytes_read": 5_016_000_000,
        "engine": "fio",
        "engine_version": "fio-3.33",
        "bytes_asked": 5_016_000_000,
        "requests": 299,
        "device_bytes": 5_016_000_000,
    }
    return made | figures | keys


def baseline(rates, access="read", *, storage="local", threads=4, engine="auto", **keys):
    """Return a done record of a baseline with measured runs of these MB/s (or these runs)."""
    runs = [it if isinstance(it, dict) else given(n, it, access) for n, it in enumerate(rates, start=1)]
    made = record(runs, storage=storage, threads=threads, **keys)
    made["runs"][0] = given(0, 9_999.0, access, role="warmup")
    benchmark = {"name": "baseline", "access": access, "engine": engine, "file_mb": 5000, "transfer_mib": 16}
    settings = made["cell"]["settings"] | {"benchmark": benchmark | {"seconds_max": 10.0}}
    kept = {"benchmark", "storage", "cache", *(("dataset", "threads", "seed") if access == "random_read" else ())}
    made["cell"]["settings"] = {key: value for key, value in settings.items() if key in kept}
    threads_of_id = f"-t{threads}" if access == "random_read" else ""
    digest = made["cell"]["id"].rpartition("-")[2]
    of_benchmark(made, "baseline", f"baseline-{access}-{storage}{threads_of_id}-{digest}")
    made["cell"] |= {"data": "file"} | (
        {"figure": "write_mb_per_s", "page_cache": "as_is"} if access == "write" else {}
    )
    if access != "random_read":
        made["dataset"] = {"path": f"/{storage}/baseline", "bytes": 5_016_387_584}
    return made
