"""The claims of papers as data, and the code that compares our cells with them."""
