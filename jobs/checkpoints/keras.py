"""The burst buffer in a Keras training: a callback that saves, and the restart from the newest snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jobs.checkpoints.buffer import BurstBuffer
from jobs.checkpoints.snapshots import PREFIX
from jobs.lazy_imports import tf


def saving_callback(buffer: BurstBuffer, model: Any, every: int) -> Any:
    """Return a ``tf.keras.callbacks.Callback`` that saves a compiled model and its optimiser.

    Parameters
    ----------
    every
        Steps of the optimiser between two snapshots; the count goes on after a restart.
    """
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)

    def write(folder: Path) -> None:
        checkpoint.write(str(folder / PREFIX))

    def after_batch(_batch: int, logs: Any) -> None:  # noqa: ARG001 - Keras passes it by this name
        step = int(model.optimizer.iterations)
        if step % every == 0:
            buffer.save(step, write)

    return tf.keras.callbacks.LambdaCallback(on_train_batch_end=after_batch)


def restore_model(buffer: BurstBuffer, model: Any) -> int:
    """Load the newest good snapshot into a compiled model and its optimiser; return its step, 0 without a snapshot."""
    newest = buffer.latest()
    if newest is None:
        return 0
    model.optimizer.build(model.trainable_variables)  # makes the slot variables, into which the snapshot is read
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    checkpoint.read(str(newest / PREFIX)).assert_existing_objects_matched()
    return int(model.optimizer.iterations)
