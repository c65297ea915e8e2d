"""Run the verbs of `python -m campaign`, one module for each verb; `campaign.__main__` calls their functions."""
