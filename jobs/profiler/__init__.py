"""Every POSIX and STDIO call of this process, seen from inside: ``with Profile() as profile: …``."""

from jobs.profiler.hook_library import ProfilerError
from jobs.profiler.profile import Profile, attach, detach
from jobs.profiler.tensorboard.profiles import ProfileCallback, TensorFlowProfile
from jobs.profiler.tensorboard.session import join_tensorflow

__all__ = ["Profile", "ProfileCallback", "ProfilerError", "TensorFlowProfile", "attach", "detach", "join_tensorflow"]
