"""Write the results of an analysis as tables, as text on a terminal, and as JUnit XML for CI."""
