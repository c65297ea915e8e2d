"""Every POSIX and STDIO call of this process, seen from inside: ``with Profile() as profile: …``."""

from jobs.profiler.library import ProfilerError
from jobs.profiler.profile import Profile, attach, detach

__all__ = ["Profile", "ProfilerError", "attach", "detach"]
