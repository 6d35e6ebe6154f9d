"""The command in bad surroundings: hostile files in the current folder, closed streams, missing libraries, odd settings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from wdistill import read_run

pytestmark = pytest.mark.proof  # whole programs, dozens of them
ROOT = Path(__file__).parent.parent
SCRIPT = "import sys\nfrom wdistill.cli import main\nif __name__ == '__main__':\n    sys.exit(main())\n"  # as pip writes it
SHADOWS = ("struct", "random", "numpy", "json", "torch", "multiprocessing", "selectors", "wdistill", "tempfile")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tiny tables and data, and the script of the command."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "bin").mkdir()
    (folder / "bin" / "wdistill").write_text(SCRIPT)
    generator = np.random.default_rng(0)
    logits, labels = generator.normal(size=(200, 3)), generator.integers(0, 3, 200)
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    gold = {"id": np.arange(60), "teacher": chances[:60], "student": chances[60:120], "label": labels[:60]}
    np.savez(folder / "gold.npz", **gold)
    np.savez(folder / "pool.npz", id=np.arange(100, 200), teacher=chances[100:], student=chances[::-1][:100])
    for name in ("labeled", "validation", "unlabeled"):
        np.savez(folder / f"{name}.npz", inputs=generator.normal(size=(60, 4)).astype("f4"), label=labels[:60])
    return folder


WEIGH = ["weigh", "--validation", "gold.npz", "--unlabeled", "pool.npz"]
DISTILL = ["distill", "--teacher", "mlp:inputs=4,classes=3", "--student", "mlp:inputs=4,classes=3,hidden=2"]
DISTILL += [word for name in ("labeled", "validation", "unlabeled") for word in (f"--{name}", f"{name}.npz")]
DISTILL += ["--teacher-epochs", "1", "--student-epochs", "1", "--epochs", "1", "--device", "cpu"]


def call(
    place: Path, *words: object, flags: tuple[str, ...] = (), before: str = "", after: str = "", **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run the command in a shell, in the folder; `before` and `after` are shell text around it."""
    quoted = " ".join(f"'{word}'" for word in (sys.executable, *flags, place / "bin" / "wdistill", *words))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **settings}
    command = ["bash", "-c", f"set -o pipefail; {before} {quoted} {after}"]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=120, check=False)


# the current folder ---------------------------------------------------------------------------------------------------


@pytest.fixture
def hostile(place: Path, tmp_path: Path) -> Path:
    """The same in a folder whose modules leave a mark when they are imported."""
    for path in place.glob("*.npz"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "wdistill").write_text(SCRIPT)
    for name in SHADOWS:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write('{name} ')\nraise OSError\n")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("words", [[*WEIGH, "--output", "out.parquet"], [*DISTILL, "--workers", "2", "--run", "run"]])
def test_nothing_is_imported_from_the_current_folder(hostile: Path, words: list[str]) -> None:
    done = call(hostile, *words)
    assert not (hostile / "imported").exists() and done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("words", [[*WEIGH, "--output", "out.parquet"], [*DISTILL, "--workers", "2", "--run", "run"]])
def test_the_module_as_a_program_imports_nothing_from_the_current_folder_but_itself(hostile: Path, words: list[str]) -> None:
    (hostile / "wdistill.py").unlink()  # Python itself would run it
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "wdistill", *words]
    done = subprocess.run(command, cwd=hostile, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert not (hostile / "imported").exists() and done.returncode == 0, done.stderr


def test_a_checkout_keeps_its_own_folder_on_the_module_path(tmp_path: Path) -> None:
    for folder in (ROOT, tmp_path):
        code = f"import sys; sys.argv = ['-m']; sys.path.insert(0, {str(folder)!r}); import wdistill; print(sys.path[0])"
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
        assert (done.stdout.strip() == str(folder)) == (folder == ROOT)


@pytest.mark.slow
def test_processes_that_decode_and_read_import_nothing_from_the_current_folder(hostile: Path) -> None:
    code = f"""
import sys
sys.path[:] = [path for path in sys.path if path not in ("", {str(hostile)!r})]
from wdistill.datasets.pictures import _worker_pool
import torch
from torch.utils.data import TensorDataset
from wdistill import Streamed
if __name__ == "__main__":
    with _worker_pool(1) as pool:
        assert pool.submit(abs, -3).result() == 3
    rows = Streamed(TensorDataset(torch.arange(6.0)[:, None]), workers=1)
    assert len(list(rows.batches([torch.arange(3), torch.arange(3)]))) == 2
    import os
    assert "PYTHONSAFEPATH" not in os.environ
"""
    (hostile / "bin" / "wdistill").write_text(code)
    done = call(hostile)
    assert not (hostile / "imported").exists() and done.returncode == 0, done.stderr


# closed streams -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "after"),
    [("weigh", after) for after in (">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full")]
    + [("distill", after) for after in ("2>&- >&-", "2>&1 | head -c 0")],
)
def test_a_stream_that_is_closed_or_not_read_costs_no_work(place: Path, tmp_path: Path, command: str, after: str) -> None:
    words = [*WEIGH, "--output"] if command == "weigh" else [*DISTILL, "--run"]
    done = call(place, *words, tmp_path / "out.parquet", after=after)
    assert done.returncode == 0 and "Traceback" not in done.stderr + done.stdout, done.stderr
    if command == "weigh":
        assert len(pq.read_table(tmp_path / "out.parquet")) == 100
    else:
        assert read_run(tmp_path / "out.parquet").state == "finished"


@pytest.mark.slow
@pytest.mark.parametrize(("after", "code"), [("| head -1", 0), (">&-", 0), (">/dev/full", 3), (">&- 2>&-", 0)])
def test_what_prints_ends_quietly_where_nobody_reads(place: Path, after: str, code: int) -> None:
    done = call(place, "data", "--root", place / "none", after=after)
    assert done.returncode == code and "Traceback" not in done.stderr and "Exception" not in done.stderr, done.stderr


@pytest.mark.slow
def test_errors_keep_their_code_where_nobody_reads(place: Path) -> None:
    for after in ("2>&-", "2>/dev/full", ">&- 2>&-"):
        assert call(place, "show", "nowhere", after=after).returncode == 2
        assert call(place, "show", "--nothing", after=after).returncode == 2


HIDING = """import sys
class Hiding:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "{}":
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hiding())
"""


# missing libraries ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("library", "words", "extra"),
    [
        ("torch", ["demo"], "wdistill[torch]"),
        ("torch", [*DISTILL, "--run", "run"], "wdistill[torch]"),
        ("torch", ["export", "run", "--output", "out"], "wdistill[torch]"),
        ("safetensors", [*DISTILL, "--run", "run"], "wdistill[torch]"),
        ("sklearn", ["demo"], "wdistill[methods]"),
        ("rich", ["runs", "."], "wdistill"),
        ("pyarrow", [*WEIGH, "--output", "out.parquet"], "wdistill"),
    ],
)
def test_a_missing_library_is_named_with_what_to_install(
    place: Path, tmp_path: Path, library: str, words: list[str], extra: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDING.format(library))
    done = call(place, *words, PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.returncode == 2 and f"pip install '{extra}'" in done.stderr, done.stderr
    assert "defect" not in done.stderr and library in done.stderr.replace("scikit-learn", "sklearn")
    assert not (place / "demo").exists() and not (place / "run").exists()


# odd settings ---------------------------------------------------------------------------------------------------------

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
ODD: list[tuple[tuple[str, ...], dict[str, str]]] = [
    ((), ASCII),
    (("-W", "error"), {"LANG": "tr_TR.UTF-8", "LC_ALL": "tr_TR.UTF-8"}),
    (("-OO",), {"PYTHONIOENCODING": "ascii"}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("flags", "settings"), ODD)
def test_commands_work_under_odd_settings(
    place: Path, tmp_path: Path, flags: tuple[str, ...], settings: dict[str, str]
) -> None:
    weights = tmp_path / ("weights.parquet" if settings is ASCII else "gewicht-ü.parquet")
    commands: list[list[object]] = [
        ["--help"],
        ["weigh", "--help"],
        [*WEIGH, "--output", weights],
        ["inspect", weights],
        ["advise", "--validation", "gold.npz", "--unlabeled", "pool.npz"],
    ]
    for words in commands:
        done = call(place, *words, flags=flags, **settings)
        assert done.returncode == 0 and "Traceback" not in done.stderr, (words, done.stderr)
    done = call(place, "show", tmp_path / "nichts-ü", flags=flags, **settings)
    assert done.returncode == 2 and "no such folder" in done.stderr


@pytest.mark.slow
def test_a_run_works_under_all_odd_settings_at_once(place: Path, tmp_path: Path) -> None:
    run, flags = tmp_path / "läuf", ("-OO", "-W", "error")
    for words in ([*DISTILL, "--run", run], ["runs", tmp_path], ["show", run], ["report", run], ["verify", run]):
        done = call(place, *words, flags=flags, **ASCII)
        assert done.returncode == 0 and "Traceback" not in done.stderr, (words, done.stderr)
