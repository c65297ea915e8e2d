"""Use a burst buffer in a Keras training: a callback that saves snapshots, and a restart from the newest snapshot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jobs.checkpoints.buffer import BurstBuffer
from jobs.checkpoints.snapshots import PREFIX
from jobs.lazy_imports import tf


def saving_callback(buffer: BurstBuffer, model: Any, every: int) -> Any:
    """Return a ``tf.keras.callbacks.Callback`` that saves snapshots of a compiled model and its optimiser.

    Parameters
    ----------
    every
        Number of optimiser steps between two snapshots. After a restart, the count of steps continues.
    """
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)

    def write(folder: Path) -> None:
        checkpoint.write(str(folder / PREFIX))

    def after_batch(_batch: int, logs: Any) -> None:  # noqa: ARG001 - Keras passes `logs` by name
        step = int(model.optimizer.iterations)
        if step % every == 0:
            buffer.save(step, write)

    return tf.keras.callbacks.LambdaCallback(on_train_batch_end=after_batch)


def restore_model(buffer: BurstBuffer, model: Any) -> int:
    """Load the newest good snapshot into a compiled model and its optimiser.

    Return the number of optimiser steps of the snapshot, or 0 if there is no snapshot.
    """
    newest = buffer.latest()
    if newest is None:
        return 0
    model.optimizer.build(model.trainable_variables)  # creates the slot variables, which the snapshot must fill
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
    checkpoint.read(str(newest / PREFIX)).assert_existing_objects_matched()
    return int(model.optimizer.iterations)
