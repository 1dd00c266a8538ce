"""What a type checker tells a user, with the stubs of pandas and pyarrow installed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.runs import REPOSITORY

REVEALED = {
    "run.table('triplets')": "darklode.api.rows.TableRows",
    "run.table('triplets')[0]": "dict[str, Any]",
    "run.table('triplets')[:3]": "darklode.api.rows.TableRows",
    "run.table('triplets').arrow": "pyarrow.__lib_pxi.table.Table",
    "run.table('triplets').df()": "pandas.core.frame.DataFrame",
    "run.table('triplets').pl()": "polars.dataframe.frame.DataFrame",
    "[row for row in run.sql('FROM queries')]": "list[dict[str, Any]]",
    "run.report": "darklode.api.views.ReportPage",
    "darklode.build('docs', 'queries.csv', run)": "darklode.api.views.JobResult",
    "darklode.evaluate(run, system='bm25').figures['evaluation'].df()": "pandas.core.frame.DataFrame",
    "darklode.validate(run, min_kappa=0.6).passed": "bool | None",
    "darklode.adapt([run, 'runs/clicks'], encoder='minilm', out='adapted').verdict": "str | None",
    "darklode.search(run, 'reset my password')": "darklode.api.rows.TableRows",
    "darklode.export(run, 'beir', 'out')": "list[pathlib.Path]",
    "darklode.serve(run).url": "str",
}


@pytest.mark.slow
def test_nothing_is_any_to_a_strict_user(tmp_path: Path) -> None:
    script = tmp_path / "user.py"
    calls = "\n".join(f"reveal_type({call})" for call in REVEALED)
    script.write_text(f"import darklode\n\nrun = darklode.open('runs/first')\n{calls}\ndarklode.buld()\n")
    options = ["--strict", "--config-file=", "--follow-imports=silent", f"--cache-dir={tmp_path / 'cache'}"]
    command = [sys.executable, "-m", "mypy", *options, str(script)]
    environment = {"MYPYPATH": str(REPOSITORY / "src"), "PATH": ""}
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert re.findall(r'note: Revealed type is "(.+)"', done.stdout) == list(REVEALED.values()), done.stdout
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 1
    assert "buld" in errors[0]
