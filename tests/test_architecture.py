"""The shape of the house: imports point one way, names are listed, and one module writes files."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import wdistill
from tests import house

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "wdistill"
OF_ENGINES = ("ray", "pyspark", "fsspec")  # libraries of --engine and of stores, asked for with whatever else is heavy


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def test_every_room_imports_only_the_rooms_before_it_and_none_the_experiments() -> None:
    graph = house.import_graph([*house.read(ROOT, "wdistill"), *house.read(ROOT, "experiments")])
    against = [*house.against_order(graph)]
    against += [
        f"{a} → {b}" for a, others in graph.items() for b in others if a[:8] == "wdistill" and b[:11] == "experiments"
    ]
    assert against == []


def test_public_names_are_listed_and_there() -> None:
    public = {
        "Answers AnswersAdvice Arm BusyError CNN CheckpointError CifarResNet ConfigError Corrected Data EntropyMean Epoch",
        "Evidence FileError Fitted advise_answers correct distill_answers read_answers Prices",
        "InputError LeakError MLP MobileNet NumericalError Outcome Recipe Refresh Report ResNet Rule Scores StorageError",
        "Streamed Training UnfinishedError WdistillError WdistillWarning Weighed advise arm best compose debiased",
        "debiasing_weight distill distortion entropy export_student fidelity load load_student margin oracle read_run rule",
        "save shuffled threshold unweighted weigh BatchFunction prepare_batches Labeler labeler",
    }
    assert set(wdistill.__all__) == {name for line in public for name in line.split()}
    assert all(hasattr(wdistill, name) for name in wdistill.__all__) and len(set(wdistill.__all__)) == len(wdistill.__all__)


def writes(call: ast.Call) -> bool:
    """Whether a call could write to a path: in-memory buffers and files that the store opened are fine."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    owner = getattr(call.func.value, "id", "") if isinstance(call.func, ast.Attribute) else ""
    modes = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if name == "open":
        return owner != "archive" and any(re.fullmatch(r"[rwax]?[bt]?[wax+][bt+]?", mode) for mode in modes)
    if name in ("save", "savez", "savez_compressed", "savefig", "tofile", "to_parquet", "ParquetWriter", "CSVWriter"):
        first = getattr(call.args[0], "id", "") if call.args else ""
        return first not in ("buffer", "file", "sink")
    return name in ("write_text", "write_bytes", "mkdir", "unlink", "rmtree", "rename", "replace_file") and owner != "store"


def test_only_the_store_writes_files() -> None:
    calls = {
        path: [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)] for path in modules()
    }
    assert {path.name for path, made in calls.items() if any(map(writes, made))} == {"store.py"}


def test_nothing_is_unpickled() -> None:
    for path in modules():
        text = path.read_text()
        assert "allow_pickle=True" not in text and not re.search(r"(?<![.\w])eval\(|torch\.load\(", text), path
        assert "import pickle" not in text or path.name == "packing.py", path  # there, between our own processes only


def test_arrays_are_read_by_the_one_reader_that_doubts_their_headers() -> None:
    readers = re.compile(r"\bnp\.load\(|open_memmap|\bread_array\(|numpy\.lib import format")
    assert {path.relative_to(PACKAGE).as_posix() for path in modules() if readers.search(path.read_text())} == {
        "core/npy.py"
    }


def test_parquet_is_read_by_the_one_reader_that_compares_checksums() -> None:
    readers = {"ParquetFile", "read_table", "read_schema", "read_metadata", "ParquetDataset", "read_pandas", "dataset"}
    calls = {
        path.relative_to(PACKAGE).as_posix()
        for path in modules()
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in readers
        if getattr(call.func.value, "id", "") in ("pq", "parquet", "ds")
        or ast.unparse(call.func.value).startswith("pyarrow")
    }
    assert calls == {"tables/formats/parquet.py"}
    assert not [path for path in modules() if re.search(r"from pyarrow\.(parquet|dataset) import", path.read_text())]
    text = (PACKAGE / "tables/formats/parquet.py").read_text()
    assert text.count("pq.ParquetFile(") == text.count("page_checksum_verification=True") == 1


ERRORS = {name for name in wdistill.__all__ if name.endswith("Error")}


def test_every_error_says_where_what_was_found_what_was_expected_and_what_to_do() -> None:
    """The helpers of core/errors.py ask for all parts; an error that is made without them must name each."""
    lacking = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {sorted(parts)}"
        for path in modules()
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ERRORS
        if (parts := {"where", "found", "expected", "remedy"} - {each.arg for each in call.keywords})
    ]
    assert lacking == []


HEAVY = (
    *("torch", "numba", "pyarrow", "matplotlib", "scipy", "PIL", "rich", "sklearn", "pandas", "ray", "pyspark"),
    *("transformers", "lightgbm", "xgboost", "keras", "lightning", "skorch", "cleanlab", "snorkel"),
)


def test_import_needs_no_heavy_library() -> None:
    code = f"import sys, wdistill; print([m for m in {(*HEAVY, *OF_ENGINES)} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_help_needs_no_heavy_library() -> None:
    code = (
        "import sys, wdistill.cli as c\n"
        "try: c.main(['weigh', '--help'])\n"
        "except SystemExit: pass\n"
        f"print([m for m in {(*HEAVY, *OF_ENGINES)} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")
