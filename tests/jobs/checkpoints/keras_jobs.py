"""Trainings with the burst buffer, for a process that has TensorFlow."""

import hashlib
import io
from contextlib import closing, redirect_stdout
from pathlib import Path


def _model():
    import tensorflow as tf  # noqa: PLC0415

    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential([tf.keras.Input((64,)), tf.keras.layers.Dense(512), tf.keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def _state(model):
    return [
        hashlib.sha256(variable.numpy().tobytes()).hexdigest()
        for variable in (*model.variables, *model.optimizer.variables)
    ]


def _data():
    import numpy as np  # noqa: PLC0415

    random = np.random.default_rng(0)
    return random.random((80, 64), dtype="float32"), random.random((80, 1), dtype="float32")


def train_and_restart(argument):
    """Train 10 steps, save every 4, restart from the buffer and go on: state and next loss beside those of a twin."""
    from jobs.burst_buffer import BurstBuffer  # noqa: PLC0415
    from jobs.checkpoints.keras import restore_model, saving_callback  # noqa: PLC0415

    x, y = _data()
    folders = Path(argument["fast"]), Path(argument["slow"])
    twin = _model()
    twin.fit(x[:64], y[:64], batch_size=8, shuffle=False, verbose=0)  # 8 steps
    with closing(BurstBuffer(*folders)) as buffer:
        model = _model()
        model.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[saving_callback(buffer, model, 4)])
        saved = [line["step"] for line in buffer.report()]
        drained = buffer.wait_until_drained(120)
    with closing(BurstBuffer(*folders)) as buffer:
        again = _model()
        step = restore_model(buffer, again)
    same = _state(again) == _state(twin)
    losses = [each.train_on_batch(x[64:72], y[64:72]) for each in (again, twin)]
    told = {"saved": saved, "drained": drained, "step": step, "same": same}
    return {"value": {**told, "losses": [float(loss) for loss in losses]}}


def fill(argument):
    """Save checkpoints of TensorFlow to a fast storage that holds two of them; returns where each one went."""
    import tensorflow as tf  # noqa: PLC0415

    from jobs.burst_buffer import BurstBuffer  # noqa: PLC0415
    from jobs.system import files  # noqa: PLC0415

    files.free_bytes = lambda folder: 1 << 40  # as under a quota: only TensorFlow finds out
    checkpoint = tf.train.Checkpoint(value=tf.Variable(tf.random.uniform([375_000])))  # 1.5 MB
    with closing(BurstBuffer(argument["fast"], argument["slow"])) as buffer:
        for step in range(5):
            buffer.save(step, lambda folder: checkpoint.write(str(folder / "ckpt")))
        return {
            "value": {"drained": buffer.wait_until_drained(120), "steps": [line["step"] for line in buffer.report()]}
        }


def run_code(argument):
    """Run lines of Python and return what they printed."""
    with redirect_stdout(io.StringIO()) as printed:
        exec(argument["code"], {})  # noqa: S102 - the documents' own example
    return {"value": printed.getvalue()}
