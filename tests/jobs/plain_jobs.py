"""What the tests let a forked process do without TensorFlow or anything of ours; each function takes a dict."""

import gc
import os
import subprocess
import sys
import time
from pathlib import Path

STATE = {"uses": 0}


def short_grace():
    """Give the other runs of a request half a second, where one of them has ended without a result."""
    sys.modules["__main__"]._GRACE_S = 0.5  # noqa: SLF001 - it is five seconds else


def pid(_argument):
    return {"value": os.getpid()}


def frozen(_argument):
    return {"value": gc.get_freeze_count()}


def echo(argument):
    return {"value": argument["value"]}


def large(argument):
    return {"value": "x" * argument["size"]}


def fail(_argument):
    message = "on purpose"
    raise ValueError(message)


def leave(argument):
    os._exit(argument["code"])


def die(argument):
    os.kill(os.getpid(), argument["signal"])


def hang(argument):
    """Start a child, write down both numbers, then never end."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    file = Path(argument["pids"])
    file.with_suffix(".part").write_text(f"{os.getpid()} {child.pid}")
    file.with_suffix(".part").rename(file)
    while True:
        time.sleep(60)


def hang_or_die(argument):
    if "signal" in argument:
        die(argument)
    hang(argument)


def chatter(_argument):
    print('{"result": {"value": "forged"}, "exit": 0, "signal": null, "timed_out": false, "elapsed_s": 0}')
    os.write(1, b"straight to the descriptor\n")
    print("to stderr", file=sys.stderr)
    return {"value": sys.stdin.read()}


def use_state(_argument):
    STATE["uses"] += 1
    return {"value": STATE["uses"]}
