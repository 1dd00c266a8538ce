"""Ctrl-C is remembered where a library swallows it."""

import subprocess
import sys

SWALLOWED = """
import os, signal
from darklode.flows import interrupt

interrupt.listen()
interrupt.check()
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    print("raised")
try:
    interrupt.check()
except KeyboardInterrupt:
    print("remembered")
"""


def test_a_swallowed_interrupt_is_raised_again() -> None:
    done = subprocess.run([sys.executable, "-c", SWALLOWED], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["raised", "remembered"]
