"""The ranks of one run on several nodes: their connections, their meetings, and their common result."""

from jobs.ranks.rank import here

__all__ = ["here"]
