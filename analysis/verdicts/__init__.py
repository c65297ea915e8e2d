"""The paper's claims, tested: a verdict on each with its evidence."""
