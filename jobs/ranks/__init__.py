"""A run on several nodes: its ranks, where they meet, and what they give together."""

from jobs.ranks.rank import here

__all__ = ["here"]
