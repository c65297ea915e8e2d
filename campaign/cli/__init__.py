"""Run the verbs of the command line; `campaign.__main__` names the function of each verb."""
