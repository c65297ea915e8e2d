"""Read the configuration of a campaign: overrides, values and their limits. Only this package imports Hydra."""
