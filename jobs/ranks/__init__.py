"""The ranks of one run on several nodes: their connections, their meetings, and their common result."""

from jobs.ranks.rank import this_rank

__all__ = ["this_rank"]
