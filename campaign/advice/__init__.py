"""What bounds a cell, by evidence, with the command that tests it; predictions are kept and held to account."""
