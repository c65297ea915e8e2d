"""Profile all POSIX and STDIO calls of this process: ``with Profile() as profile: …``."""

from jobs.profiler.hook_library import ProfilerError
from jobs.profiler.profile import Profile, attach, detach
from jobs.profiler.tensorflow_profiles import ProfileCallback, TensorFlowProfile, join_tensorflow

__all__ = ["Profile", "ProfileCallback", "ProfilerError", "TensorFlowProfile", "attach", "detach", "join_tensorflow"]
