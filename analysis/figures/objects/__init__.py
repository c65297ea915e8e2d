"""Figures of object stores."""
