"""Connect the ranks of one run on several nodes, let the ranks meet, and combine their results."""

from jobs.ranks.rank import file_of_rank, this_rank

__all__ = ["file_of_rank", "this_rank"]
