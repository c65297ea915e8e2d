"""Configuration values: Hydra groups, no logic."""
