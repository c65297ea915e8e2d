"""Results for a reader: tables, terminal, report page, JUnit."""
