"""Connect the ranks of one run on several nodes, let the ranks meet, and combine their results."""

from jobs.ranks.rank import this_rank

__all__ = ["this_rank"]
