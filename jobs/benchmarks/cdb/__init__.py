"""What belongs to benchmark ``climate`` alone: NERSC's CDB."""
