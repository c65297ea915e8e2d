"""Make the HTML report page, a single file that needs no network, no scripts and no fonts of its own."""
