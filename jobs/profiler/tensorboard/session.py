"""Our windows as a part of TensorFlow's profiles, whoever starts them: a callback, a script, its profiler's server.

TensorFlow's C API lets a library take part in each session of its profiler (pluggable_profiler.h, version 0.0): it
calls ``start``, ``stop`` and ``collect``, and adds the planes that the last one returns to its trace.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import Any

from jobs.errors import JobError
from jobs.lazy_imports import tf
from jobs.profiler import build
from jobs.profiler.hook_library import ProfilerError, library
from jobs.profiler.profile import Profile
from jobs.profiler.tensorboard import plane
from jobs.profiler.window import Window

_DEVICE_TYPE = b"TF_IO"  # TensorFlow takes capitals and underscores
_VERSION = 0  # the major one: another may call otherwise
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
    """What TensorFlow calls, from whatever thread; it has one session at a time."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}
        self.profile: Profile | None = None
        self.window: Window | None = None
        self.fault: JobError | None = None
        self.planes = b""

    def start(self, *_: object) -> None:
        """Open a window; where that fails, the trace says why."""
        self.profile = self.window = self.fault = None
        try:
            profile = Profile(**self.asked)
            profile.start()
        except JobError as error:
            self.fault = error
        else:
            self.profile = profile

    def stop(self, *_: object) -> None:
        """End it."""
        profile, self.profile = self.profile, None
        if profile:
            self.window = profile.stop()

    def collect(self, _: object, buffer: int | None, size: Any, __: object) -> None:
        """Return the planes: asked without a buffer, how many bytes they are."""
        if not buffer:
            self.planes = plane.planes(self.window, 0, str(self.fault or "the window was not ended"))
            size[0] = len(self.planes)
        else:
            ctypes.memmove(buffer, self.planes, min(size[0], len(self.planes)))
            self.planes = b""


SESSION = _Session()
_FUNCTIONS = _ACT(SESSION.start), _ACT(SESSION.stop), _COLLECT(SESSION.collect)  # for as long as the process lives


def _register(registration: int, _: int) -> None:
    told = _Registration.from_address(registration)
    if told.major != _VERSION:
        return  # TensorFlow refuses a registration that is not filled in
    nothing = ctypes.cast(library().profiler_nothing, ctypes.c_void_p).value
    told.destroy_profiler = told.destroy_functions = nothing
    told.profiler.contents.device_type = _DEVICE_TYPE
    functions = told.functions.contents
    functions.start, functions.stop, functions.collect = _FUNCTIONS


_REGISTER = _ACT(_register)


def join_tensorflow(**asked: Any) -> None:
    """Let each profile that TensorFlow makes in this process, from now on, have a window of ours: `Profile`'s keywords.

    Called again, it changes what the next windows keep. Raises ProfilerError: this TensorFlow has no such interface.
    """
    Profile(**asked)  # what cannot be asked for is told here
    SESSION.asked = asked
    _joined()


@lru_cache(maxsize=1)
def _joined() -> None:
    ctypes.c_void_p.in_dll(library(), "profiler_joins").value = ctypes.cast(_REGISTER, ctypes.c_void_p).value
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
    load(bytes(build.library()), status)
    said = api.TF_Message(status).decode(errors="replace") if api.TF_GetCode(status) else ""
    api.TF_DeleteStatus(status)
    if said:
        raise ProfilerError(f"TensorFlow does not take our profiler: {said}", "take Profile")
