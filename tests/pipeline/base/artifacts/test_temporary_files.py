"""Names of temporary files: whose they are, and when they are left over."""

import os
import time
from pathlib import Path

from darklode.pipeline.base.artifacts.temporary_files import is_left_over, is_temporary, new_lease, temporary_path


def test_a_name_is_recognised_and_a_result_is_not() -> None:
    lease = new_lease()
    name = temporary_path(Path("tables/part.parquet"), lease).name
    assert is_temporary(name)
    assert not is_temporary("part.parquet")


def test_files_of_this_lease_are_in_use_and_those_of_an_earlier_one_are_left_over() -> None:
    lease, now = new_lease(), time.time()
    assert lease != new_lease()
    assert not is_left_over(temporary_path(Path("part.parquet"), lease).name, now, lease)
    ended = temporary_path(Path("part.parquet"), new_lease()).name.replace(f".{os.getpid()}.", ".999999999.")
    assert is_left_over(ended, now, lease)
