"""What a process does and when: where its time goes, and its time log: ``with TimeLog(FILE) as log: …``."""

from jobs.events.time_log import TimeLog, TimeLogError

__all__ = ["TimeLog", "TimeLogError"]
