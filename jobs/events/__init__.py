"""Events of a process and their times. A process writes its time log by ``with TimeLog(FILE) as log: …``."""

from jobs.events.time_log import TimeLog, TimeLogError

__all__ = ["TimeLog", "TimeLogError"]
