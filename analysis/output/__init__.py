"""The output for people and CI: tables, terminal text and JUnit XML."""
