"""Write and read the events of processes with their times. A process writes a time log with `TimeLog`."""

from jobs.events.time_log import TimeLog, TimeLogError

__all__ = ["TimeLog", "TimeLogError"]
