"""bm25s is imported without JAX, which would take most of a GPU's memory."""

import subprocess
import sys
from pathlib import Path

from helpers.environment import with_paths

IMPORTED = """
import sys
from darklode.pipeline.base.bm25s_import import import_bm25s
from darklode.pipeline.base.terms import Analyzer
from darklode.pipeline.retrieve.retrievers.bm25 import engines
assert import_bm25s() is engines()
assert not [name for name in sys.modules if name.split(".")[0] == "jax"]
import jax
"""


def test_jax_is_not_run_and_can_be_imported_afterwards(tmp_path: Path) -> None:
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("")
    (tmp_path / "jax" / "lax.py").write_text("raise MemoryError('the GPU is in use')")
    environment = with_paths()
    environment["PYTHONPATH"] = f"{tmp_path}:{environment['PYTHONPATH']}"
    done = subprocess.run([sys.executable, "-c", IMPORTED], env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]


STOP_WORDS = """
import sys
from darklode.pipeline.base.bm25s_import import bm25s_stop_words
words = bm25s_stop_words()
assert "bm25s" not in sys.modules
from bm25s.stopwords import STOPWORDS_EN_PLUS
assert words == STOPWORDS_EN_PLUS
"""


def test_stop_words_are_read_without_the_package() -> None:
    command = [sys.executable, "-c", STOP_WORDS]
    done = subprocess.run(command, env=with_paths(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
