"""List the claims of papers as data, and compare these claims with the cells of a campaign."""
