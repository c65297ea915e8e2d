"""Profiles of TensorFlow's with a window of ours in each: round a block, and in a Keras training."""

from __future__ import annotations

import errno
import secrets
from itertools import count
from pathlib import Path
from typing import Any, Self

from jobs.lazy_imports import tf
from jobs.profiler.hook_library import ProfilerError
from jobs.profiler.tensorboard import summaries
from jobs.profiler.tensorboard.session import SESSION, join_tensorflow
from jobs.profiler.window import Window
from jobs.system import files


class TensorFlowProfile:
    """A profile of TensorFlow and a window of POSIX calls over the same time, for TensorBoard.

    `logdir` is TensorBoard's; `step` the place of the window's scalars and histograms; the other keywords are those of
    `jobs.profiler.Profile`.
    """

    def __init__(self, logdir: str | Path, step: int = 0, **asked: Any) -> None:
        self._logdir, self._asked, self.step = Path(logdir).resolve(), asked, step
        # Where TensorFlow writes: it names a trace by the second, over another one of that second.
        self._own: Path | None = None

    def start(self) -> None:
        """Start both. Raises ProfilerError for ours, and TensorFlow's errors for its own: one at a time."""
        join_tensorflow(**self._asked)
        own = self._logdir / f".{secrets.token_hex(8)}"
        tf.profiler.experimental.start(str(own))
        if SESSION.fault or SESSION.profile is None:
            tf.profiler.experimental.stop(save=False)
            raise SESSION.fault or ProfilerError("TensorFlow has not called our profiler", "take Profile")
        self._own = own

    def stop(self) -> Window:
        """Stop both, and write: the trace with our planes, then scalars, histograms and text. Returns our window."""
        own, self._own = self._own, None
        if own is None:
            raise ProfilerError("no profile was started here", "call start() first")
        try:
            tf.profiler.experimental.stop()
            _move(own, self._logdir)
        finally:
            if own.exists():
                files.remove_tree(own)
        if SESSION.window is None:
            raise ProfilerError("the window was ended by somebody else")
        summaries.write(self._logdir, SESSION.window, self.step)
        return SESSION.window

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _move(own: Path, logdir: Path) -> None:
    """Bring the trace that lies in a folder of its own to its place, under a name that is not taken."""
    made, target = own / "plugins" / "profile", logdir / "plugins" / "profile"
    files.make_folder(target, exist_ok=True, parents=True)
    for name in files.names(made):
        for number in count(1):
            try:
                files.rename(made / name, target / (f"{name}_{number}" if number > 1 else name))
                break
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise


class _Batches:
    """The batches of a training, counted from 0 over all epochs, and the window that is open in some of them."""

    def __init__(self, profile: TensorFlowProfile, first: int, last: int, every: int) -> None:
        self._profile, self._first, self._last, self._every = profile, first, last, every
        self._batch = 0
        self._marker: Any = None

    def begin(self, _batch: int, logs: Any) -> None:  # noqa: ARG002 - Keras passes it by this name
        """Open the window before its first batch; mark each batch in it, as Keras does not."""
        if self._batch == self._first:
            self._profile.start()
            _OPEN[:] = [self]
        if self in _OPEN:
            self._marker = tf.profiler.experimental.Trace("train", step_num=self._batch, _r=1)
            self._marker.__enter__()

    def end(self, _batch: int, logs: Any) -> None:
        """End the window behind its last batch."""
        if self in _OPEN:
            self._unmark()
            if self._batch >= self._last:
                self.finish(logs)
                self._first, self._last = self._first + self._every, self._last + self._every
        self._batch += 1

    def finish(self, logs: Any) -> None:  # noqa: ARG002
        """End the window that is open, if one is: a training ends, or begins after one that failed in its window."""
        if _OPEN:
            _OPEN.pop().stop()

    def stop(self) -> None:
        """End the window, and the mark of a batch that did not come to its end."""
        self._unmark()
        self._profile.step = self._batch
        self._profile.stop()

    def _unmark(self) -> None:
        if self._marker:
            self._marker.__exit__(None, None, None)
        self._marker = None


_OPEN: list[_Batches] = []


def ProfileCallback(  # noqa: N802 - called as Keras's own callbacks are, which are classes
    logdir: str | Path, batches: tuple[int, int] = (1, 20), every: int = 0, **asked: Any
) -> Any:
    """Return a Keras callback that profiles the batches from the first to the last one, counted from 0.

    With `every`, again so many batches later, and so on; the other keywords are those of `jobs.profiler.Profile`.
    """
    first, last = batches
    if not 0 <= first <= last or (every and every <= last - first):
        raise ProfilerError(f"batches {first} to {last}, every {every}", "a range, and `every` longer than it")
    steps = _Batches(TensorFlowProfile(logdir, **asked), first, last, every)
    return tf.keras.callbacks.LambdaCallback(
        on_train_begin=steps.finish,
        on_train_batch_begin=steps.begin,
        on_train_batch_end=steps.end,
        on_train_end=steps.finish,
    )
