"""Events of a process and the time they take; its time log is written by ``with TimeLog(FILE) as log: …``."""

from jobs.events.time_log import TimeLog, TimeLogError

__all__ = ["TimeLog", "TimeLogError"]
