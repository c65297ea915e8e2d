"""Add windows of this profiler to the profiles that TensorFlow's own profiler makes.

TensorFlow's C API (pluggable_profiler.h, version 0.0) lets a library join each session of TensorFlow's profiler.
TensorFlow calls the functions ``start``, ``stop`` and ``collect`` of the library, and adds the planes that ``collect``
returns to the trace. It does not matter whether a callback, a ``with`` block or TensorFlow's profiler server starts
the session.
"""

from __future__ import annotations

import ctypes
import errno
import secrets
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any, Self

from jobs.errors import JobError
from jobs.events.posix_window import Window
from jobs.lazy_imports import tf
from jobs.profiler import build, tensorboard_files
from jobs.profiler.hook_library import ProfilerError, load_library
from jobs.profiler.profile import Profile
from jobs.system import files

_DEVICE_TYPE = b"TF_IO"  # TensorFlow allows only capital letters and underscores
_VERSION = 0  # major version of pluggable_profiler.h
_ACT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_COLLECT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t), ctypes.c_void_p)
_SIZED = (("struct_size", ctypes.c_size_t), ("ext", ctypes.c_void_p))


class _Profiler(ctypes.Structure):
    """The struct ``TP_Profiler`` of pluggable_profiler.h."""

    _fields_ = (*_SIZED, ("device_type", ctypes.c_char_p))


class _Functions(ctypes.Structure):
    """The struct ``TP_ProfilerFns`` of pluggable_profiler.h."""

    _fields_ = (*_SIZED, ("start", _ACT), ("stop", _ACT), ("collect", _COLLECT))


class _Registration(ctypes.Structure):
    """The struct ``TF_ProfilerRegistrationParams`` of pluggable_profiler.h."""

    _fields_ = (
        *_SIZED,
        *((name, ctypes.c_int32) for name in ("major", "minor", "patch")),
        ("profiler", ctypes.POINTER(_Profiler)),
        ("functions", ctypes.POINTER(_Functions)),
        ("destroy_profiler", ctypes.c_void_p),
        ("destroy_functions", ctypes.c_void_p),
    )


class _Session:
    """The functions that TensorFlow's profiler calls, from any thread; there is one session at a time."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.profile: Profile | None = None
        self.window: Window | None = None
        self.fault: JobError | None = None
        self.planes = b""

    def start(self, *_: object) -> None:
        """Open a window; after an error, store the error, so that the trace shows the reason."""
        self.profile = self.window = self.fault = None
        try:
            profile = Profile(**self.options)
            profile.start()
        except JobError as error:
            self.fault = error
        else:
            self.profile = profile

    def stop(self, *_: object) -> None:
        """End the window."""
        profile, self.profile = self.profile, None
        if profile:
            self.window = profile.stop()

    def collect(self, _: object, buffer: int | None, size: Any, __: object) -> None:
        """Return the planes to TensorFlow, which calls this function twice.

        The first call has no buffer: make the planes, and write the number of bytes into `size`. The second call has a
        buffer: copy the planes into `buffer`.
        """
        if not buffer:
            self.planes = tensorboard_files.serialised_planes(
                self.window, 0, str(self.fault or "the window was not ended")
            )
            size[0] = len(self.planes)
        else:
            ctypes.memmove(buffer, self.planes, min(size[0], len(self.planes)))
            self.planes = b""


SESSION = _Session()
# The C functions must exist until the process ends, because TensorFlow may call them.
_FUNCTIONS = _ACT(SESSION.start), _ACT(SESSION.stop), _COLLECT(SESSION.collect)


def _register(registration: int, _: int) -> None:
    parameters = _Registration.from_address(registration)
    if parameters.major != _VERSION:
        return  # TensorFlow refuses an empty registration
    do_nothing = ctypes.cast(load_library().profiler_nothing, ctypes.c_void_p).value
    parameters.destroy_profiler = parameters.destroy_functions = do_nothing
    parameters.profiler.contents.device_type = _DEVICE_TYPE
    functions = parameters.functions.contents
    functions.start, functions.stop, functions.collect = _FUNCTIONS


_REGISTER = _ACT(_register)


def join_tensorflow(**options: Any) -> None:
    """Add a window to each profile that TensorFlow makes in this process from now on.

    The options are the arguments of `jobs.profiler.Profile`. Another call of this function changes the options of later
    windows. Raises ProfilerError if this version of TensorFlow has no interface for other profilers.
    """
    Profile(**options)  # raises an error for invalid options
    SESSION.options = options
    _register_once()


@lru_cache(maxsize=1)
def _register_once() -> None:
    ctypes.c_void_p.in_dll(load_library(), "profiler_joins").value = ctypes.cast(_REGISTER, ctypes.c_void_p).value
    try:
        api = ctypes.CDLL(str(Path(tf.__file__).with_name("libtensorflow_cc.so.2")))
        load = api.TF_LoadPluggableDeviceLibrary
    except (OSError, AttributeError) as error:
        message = f"this TensorFlow does not allow other profilers to join its profiler: {error}"
        raise ProfilerError(message, "use jobs.profiler.Profile") from error
    api.TF_NewStatus.restype = ctypes.c_void_p
    api.TF_Message.restype = ctypes.c_char_p
    for function in (api.TF_GetCode, api.TF_Message, api.TF_DeleteStatus):
        function.argtypes = (ctypes.c_void_p,)
    load.argtypes, load.restype = (ctypes.c_char_p, ctypes.c_void_p), ctypes.c_void_p
    status = api.TF_NewStatus()
    load(bytes(build.library_path()), status)
    fault = api.TF_Message(status).decode(errors="replace") if api.TF_GetCode(status) else ""
    api.TF_DeleteStatus(status)
    if fault:
        raise ProfilerError(f"TensorFlow refuses jobs.profiler: {fault}", "use jobs.profiler.Profile")


class TensorFlowProfile:
    """A profile by TensorFlow and a window of POSIX calls at the same time, for TensorBoard.

    `logdir` is TensorBoard's folder. `step` is the step under which TensorBoard shows the scalars and histograms of the
    window. The other options are the arguments of `jobs.profiler.Profile`.
    """

    def __init__(self, logdir: str | Path, step: int = 0, **options: Any) -> None:
        self._logdir, self._options, self.step = Path(logdir).resolve(), options, step
        # TensorFlow writes the trace into a temporary folder first. TensorFlow names a trace by the second of its time,
        # so that a second trace within the same second would replace the first trace.
        self._trace_folder: Path | None = None

    def start(self) -> None:
        """Start TensorFlow's profile and the window of POSIX calls.

        Raises ProfilerError if the window cannot be opened, and TensorFlow's own errors if its profiler cannot start.
        """
        join_tensorflow(**self._options)
        folder = self._logdir / f".{secrets.token_hex(8)}"
        tf.profiler.experimental.start(str(folder))
        if SESSION.fault or SESSION.profile is None:
            tf.profiler.experimental.stop(save=False)
            raise SESSION.fault or ProfilerError("TensorFlow did not call jobs.profiler", "use jobs.profiler.Profile")
        self._trace_folder = folder

    def stop(self) -> Window:
        """Stop TensorFlow's profile and the window, and return the window.

        The trace with the calls, the scalars, the histograms and the text are written into TensorBoard's folder.
        """
        folder, self._trace_folder = self._trace_folder, None
        if folder is None:
            raise ProfilerError("no profile was started", "call start() first")
        try:
            tf.profiler.experimental.stop()
            _move_traces(folder, self._logdir)
        finally:
            if folder.exists():
                files.remove_tree(folder)
        if SESSION.window is None:
            raise ProfilerError("other code ended the window before this profile was stopped")
        tensorboard_files.write_summaries(self._logdir, SESSION.window, self.step)
        return SESSION.window

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _move_traces(folder: Path, logdir: Path) -> None:
    """Move the traces from the temporary folder to TensorBoard's folder, under names that do not exist there yet."""
    source, target = folder / "plugins" / "profile", logdir / "plugins" / "profile"
    files.make_folder(target, exist_ok=True, parents=True)
    for name in files.names_in_folder(source):
        for number in count(1):
            try:
                files.rename(source / name, target / (f"{name}_{number}" if number > 1 else name))
                break
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise


class _Batches:
    """Counts the batches of a training from 0 over all epochs, and opens a window during a range of batches."""

    def __init__(self, profile: TensorFlowProfile, first: int, last: int, every: int) -> None:
        self._profile, self._first, self._last, self._every = profile, first, last, every
        self._batch = 0
        self._marker: Any = None

    def begin(self, _batch: int, logs: Any) -> None:  # noqa: ARG002 - Keras passes `logs` by this name
        """Open the window before the first batch of the range, and mark each batch, because Keras marks no batches."""
        if self._batch == self._first:
            self._profile.start()
            _ACTIVE[:] = [self]
        if self in _ACTIVE:
            self._marker = tf.profiler.experimental.Trace("train", step_num=self._batch, _r=1)
            self._marker.__enter__()

    def end(self, _batch: int, logs: Any) -> None:
        """End the window after the last batch of the range."""
        if self in _ACTIVE:
            self._unmark()
            if self._batch >= self._last:
                self.finish(logs)
                self._first, self._last = self._first + self._every, self._last + self._every
        self._batch += 1

    def finish(self, logs: Any) -> None:  # noqa: ARG002
        """End a window that is still open when a training ends.

        At the start of a training, a window can still be open if the previous training failed within the window.
        """
        if _ACTIVE:
            _ACTIVE.pop().stop()

    def stop(self) -> None:
        """End the window, and the mark of an unfinished batch."""
        self._unmark()
        self._profile.step = self._batch
        self._profile.stop()

    def _unmark(self) -> None:
        if self._marker:
            self._marker.__exit__(None, None, None)
        self._marker = None


_ACTIVE: list[_Batches] = []


def ProfileCallback(  # noqa: N802 - named like the classes of Keras's callbacks
    logdir: str | Path, batches: tuple[int, int] = (1, 20), every: int = 0, **options: Any
) -> Any:
    """Return a Keras callback that profiles a range of batches, from the first to the last batch in `batches`.

    Batches are numbered from 0. If `every` is not 0, the profile is repeated every `every` batches. The other options
    are the arguments of `jobs.profiler.Profile`.
    """
    first, last = batches
    if not 0 <= first <= last or (every and every <= last - first):
        message = f"batches {first} to {last} cannot be profiled every {every} batches"
        raise ProfilerError(message, "name a range of batches, and an `every` that is longer than the range")
    steps = _Batches(TensorFlowProfile(logdir, **options), first, last, every)
    return tf.keras.callbacks.LambdaCallback(
        on_train_begin=steps.finish,
        on_train_batch_begin=steps.begin,
        on_train_batch_end=steps.end,
        on_train_end=steps.finish,
    )
