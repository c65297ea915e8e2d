"""Windows of this profiler as a part of TensorFlow's profiles, which a callback, a block or its server starts.

TensorFlow's C API lets a library join each session of its profiler (pluggable_profiler.h, version 0.0): it
calls ``start``, ``stop`` and ``collect``, and adds the planes that ``collect`` returns to its trace.
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

_DEVICE_TYPE = b"TF_IO"  # TensorFlow allows capitals and underscores
_VERSION = 0  # major version of the interface
_ACT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
_COLLECT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t), ctypes.c_void_p)
_SIZED = (("struct_size", ctypes.c_size_t), ("ext", ctypes.c_void_p))


class _Profiler(ctypes.Structure):
    """``TP_Profiler``."""

    _fields_ = (*_SIZED, ("device_type", ctypes.c_char_p))


class _Functions(ctypes.Structure):
    """``TP_ProfilerFns``."""

    _fields_ = (*_SIZED, ("start", _ACT), ("stop", _ACT), ("collect", _COLLECT))


class _Registration(ctypes.Structure):
    """``TF_ProfilerRegistrationParams``."""

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
        """Open a window; if that fails, the trace shows the reason."""
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
        """Write the planes into `buffer`; without a buffer, make them and write their size in bytes into `size`."""
        if not buffer:
            self.planes = tensorboard_files.serialised_planes(
                self.window, 0, str(self.fault or "the window was not ended")
            )
            size[0] = len(self.planes)
        else:
            ctypes.memmove(buffer, self.planes, min(size[0], len(self.planes)))
            self.planes = b""


SESSION = _Session()
_FUNCTIONS = _ACT(SESSION.start), _ACT(SESSION.stop), _COLLECT(SESSION.collect)  # kept until the process ends


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
    """Add a window to each profile that TensorFlow makes in this process from now on; the keywords are `Profile`'s.

    A further call changes the keywords of the next windows. Raises ProfilerError if TensorFlow lacks the interface.
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
        raise ProfilerError(f"no profiler can take part in this TensorFlow's: {error}", "take Profile") from error
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
        raise ProfilerError(f"TensorFlow does not take our profiler: {fault}", "take Profile")


class TensorFlowProfile:
    """A profile by TensorFlow and a window of POSIX calls at the same time, for TensorBoard.

    `logdir` is TensorBoard's folder, `step` is the step of the window's scalars and histograms, and the other keywords
    are those of `jobs.profiler.Profile`.
    """

    def __init__(self, logdir: str | Path, step: int = 0, **options: Any) -> None:
        self._logdir, self._options, self.step = Path(logdir).resolve(), options, step
        # TensorFlow writes to a folder of its own: it names traces by the second, and would replace an earlier trace.
        self._trace_folder: Path | None = None

    def start(self) -> None:
        """Start both profiles; raise ProfilerError for this one, and TensorFlow's errors for its own one."""
        join_tensorflow(**self._options)
        folder = self._logdir / f".{secrets.token_hex(8)}"
        tf.profiler.experimental.start(str(folder))
        if SESSION.fault or SESSION.profile is None:
            tf.profiler.experimental.stop(save=False)
            raise SESSION.fault or ProfilerError("TensorFlow has not called our profiler", "take Profile")
        self._trace_folder = folder

    def stop(self) -> Window:
        """Stop both profiles; write the trace with our planes, scalars, histograms and text; return our window."""
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
            raise ProfilerError("the window was ended elsewhere")
        tensorboard_files.write_summaries(self._logdir, SESSION.window, self.step)
        return SESSION.window

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _move_traces(folder: Path, logdir: Path) -> None:
    """Move the traces from the temporary folder to TensorBoard's folder, under free names."""
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
    """The batches of a training, counted from 0 over all epochs, and the window that is open during some of them."""

    def __init__(self, profile: TensorFlowProfile, first: int, last: int, every: int) -> None:
        self._profile, self._first, self._last, self._every = profile, first, last, every
        self._batch = 0
        self._marker: Any = None

    def begin(self, _batch: int, logs: Any) -> None:  # noqa: ARG002 - Keras passes it by this name
        """Open the window before its first batch; mark each batch in it, because Keras does not."""
        if self._batch == self._first:
            self._profile.start()
            _ACTIVE[:] = [self]
        if self in _ACTIVE:
            self._marker = tf.profiler.experimental.Trace("train", step_num=self._batch, _r=1)
            self._marker.__enter__()

    def end(self, _batch: int, logs: Any) -> None:
        """End the window after its last batch."""
        if self in _ACTIVE:
            self._unmark()
            if self._batch >= self._last:
                self.finish(logs)
                self._first, self._last = self._first + self._every, self._last + self._every
        self._batch += 1

    def finish(self, logs: Any) -> None:  # noqa: ARG002
        """End the open window, if any: a training ends, or begins after one that failed within its window."""
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
    """Return a Keras callback that profiles the batches from the first to the last one, counted from 0.

    `every` repeats this after each `every` batches; the other keywords are those of `jobs.profiler.Profile`.
    """
    first, last = batches
    if not 0 <= first <= last or (every and every <= last - first):
        raise ProfilerError(f"batches {first} to {last}, every {every}", "a range, and `every` longer than it")
    steps = _Batches(TensorFlowProfile(logdir, **options), first, last, every)
    return tf.keras.callbacks.LambdaCallback(
        on_train_begin=steps.finish,
        on_train_batch_begin=steps.begin,
        on_train_batch_end=steps.end,
        on_train_end=steps.finish,
    )
