"""What NERSC's two trainings, ``hepcnn`` and ``climate``, have in common: steps, and the run of one rank."""
