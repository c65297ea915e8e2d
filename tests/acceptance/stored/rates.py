"""A program that says the next of the rates that lie beside its data, each time it is run."""

import pathlib
import sys

data = pathlib.Path(sys.argv[1])
count = data.with_suffix(".count")
number = int(count.read_text()) if count.exists() else 0
count.write_text(str(number + 1))
print("rate:", (data / "rates").read_text().split()[number])
