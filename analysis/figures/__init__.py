"""The figures: functions from tables to `matplotlib.figure.Figure`; nothing is judged or written to a file here."""
