"""Ctrl-C is remembered where a library swallows it, and breaks no import."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.runs import PYTHONPATH

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


MODULE = """
import os, signal

os.kill(os.getpid(), signal.SIGINT)
print("imported")
"""

IMPORTING = """
from darklode.flows import interrupt

interrupt.listen()
try:
    IMPORT
    print("continued")
except KeyboardInterrupt:
    print("raised")
"""


@pytest.mark.parametrize(
    "statement", ["import module", "from outer import value", "__import__('importlib').import_module('outer')"]
)
def test_an_import_ends_before_the_interrupt_is_raised(tmp_path: Path, statement: str) -> None:
    (tmp_path / "module.py").write_text(MODULE)
    (tmp_path / "outer.py").write_text("import module\nvalue = 1\n")
    command = [sys.executable, "-c", IMPORTING.replace("IMPORT", statement)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([PYTHONPATH, str(tmp_path)])}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.split() == ["imported", "raised"]
