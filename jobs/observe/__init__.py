"""What is read from the system beside a run, and the time log of a process: ``with TimeLog(FILE) as log: …``."""

from jobs.observe.time_log import TimeLog, TimeLogError

__all__ = ["TimeLog", "TimeLogError"]
