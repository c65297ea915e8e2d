"""Figures of tf-Darshan: windows beside the trace of the system; bandwidth; what a profile costs."""
