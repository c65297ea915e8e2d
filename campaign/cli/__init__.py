"""The verbs of the command line; `campaign.__main__` says which function does which."""
