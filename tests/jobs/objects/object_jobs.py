"""What the tests of objects let a forked process do; each function takes a dict and returns one."""

import hashlib
import os
from pathlib import Path

from jobs import run
from jobs.data import manifest, pipeline
from jobs.objects import source


def execute(argument):
    """Run a request; the credentials are in the argument's environment."""
    os.environ.update(argument["environment"])
    return {"value": run.execute(argument["request"])}


def pixels(argument):
    """Return of each object, by index, its size and a checksum of the pixels that the pipeline gives of it."""
    os.environ.update(argument["environment"])
    request, settings = argument["request"], argument["request"]["settings"]
    listed = manifest.load(Path(request["manifest"]))
    names = [file.name for file in listed.files]
    if "storage" not in settings:
        return {"value": _pixels([str(Path(request["dataset"], name)) for name in names], settings)}
    order = [names[index] for index in pipeline.order(names, settings["seed"])]
    with source.of_dataset(settings["storage"], request["dataset"], listed, None, 2) as opened, opened.in_order(order):
        return {"value": _pixels(names, settings)}


def _pixels(names, settings):
    batches = pipeline.build(names, settings)
    rows = (row for batch in batches for row in zip(*(part.numpy() for part in batch), strict=True))
    return sorted((int(index), int(size), hashlib.sha256(image.tobytes()).hexdigest()) for index, size, image in rows)
