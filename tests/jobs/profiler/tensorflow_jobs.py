"""What TensorFlow does while it is profiled, in a process that the template forks."""

import tempfile
from collections import Counter
from pathlib import Path

from jobs.events.posix_window import OPERATIONS
from jobs.lazy_imports import tf
from jobs.profiler import Profile


def _calls(events):
    return dict(Counter(OPERATIONS[code] for code in events["operation"].tolist()))


def _process_wrote():
    return int(Path("/proc/self/io").read_text().partition("wchar: ")[2].split()[0])


def checkpoint(_argument):
    """Save a variable."""
    with tempfile.TemporaryDirectory() as folder:
        saved = tf.train.Checkpoint(x=tf.Variable(tf.zeros([1000, 100])))
        before = _process_wrote()
        with Profile(only=[folder]) as profile:
            saved.write(f"{folder}/c")
        kernel_bytes = _process_wrote() - before
        sizes = sum(path.stat().st_size for path in Path(folder).iterdir() if path.is_file())
    calls = _calls(profile.events)
    written = profile.events["returned"][profile.events["operation"] == OPERATIONS.index("fwrite")].sum()
    seen = {"fopen": calls["fopen"], "fclose": calls["fclose"], "written": int(written), "sizes": sizes}
    return {"value": {**seen, "kernel_bytes": kernel_bytes}}
