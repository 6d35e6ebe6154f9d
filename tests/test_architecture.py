"""The shape of the house: imports point one way, names are listed, one module writes, and the README tells the truth."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import wdistill

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "wdistill"

# Every module may import those to its left (and modules of its own group), never to its right.
LAYERS = [
    {"errors"},
    {"threads", "store", "elementary", "checks"},
    {"fast_lanes"},
    {"confidence", "fast_confidence", "neighbors", "fast_neighbors"},
    {"weighting"},
    {"evidence"},
    {"rules"},
    {"states", "inspection"},
    {"readers"},
    {"ids", "progress", "outputs"},
    {"joining", "options"},
    {"validation", "sampling"},
    {"task"},
    {"job"},
    {"outcome", "ledger", "recipe", "signals", "environment"},
    {"datasets"},
    {"methods"},
    {"arms"},
    {"experts", "correcting"},
    {"runs", "training", "pages", "watching"},
    {"exporting"},
    {"distillation"},
    {"theory"},
    {"demo"},
    {"commands"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def group(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """The modules of the package that a file imports anywhere, inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "wdistill":
            names |= {alias.name for alias in node.names if alias.name in LEVEL}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("wdistill."):
            names.add((node.module or "").split(".")[1])
        elif isinstance(node, ast.Import):
            names |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("wdistill.")}
    return names


def test_every_module_has_its_place() -> None:
    assert {group(path) for path in modules()} == set(LEVEL)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    own = LEVEL[group(path)]
    assert {name for name in imported(path) if LEVEL[name] > own} == set()


def test_public_names_are_listed_and_there() -> None:
    public = {
        "Arm BusyError CNN CheckpointError CifarResNet ConfigError Data EntropyMean Epoch Evidence FileError Fitted",
        "InputError LeakError MLP MobileNet NumericalError Outcome Recipe Refresh Report ResNet Rule Scores StorageError",
        "Streamed Training UnfinishedError WdistillError WdistillWarning Weighed advise arm best compose debiased",
        "debiasing_weight distill distortion entropy export_student fidelity load load_student margin oracle read_run rule",
        "save shuffled threshold unweighted weigh",
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


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_the_store_writes_files(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    found = {node.lineno for node in calls if writes(node)}
    assert bool(found) == (path.name == "store.py"), found


def test_nothing_is_unpickled() -> None:
    for path in modules():
        text = path.read_text()
        assert "allow_pickle=True" not in text and not re.search(r"(?<![.\w])eval\(|torch\.load\(", text), path
        assert "import pickle" not in text or path.name == "workers.py", path  # there, between our own processes only


HEAVY = ("torch", "numba", "pyarrow", "matplotlib", "scipy", "PIL", "rich")


def test_import_needs_no_heavy_library() -> None:
    code = f"import sys, wdistill; print([m for m in {HEAVY} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_help_needs_no_heavy_library() -> None:
    code = (
        "import sys, wdistill.cli as c\n"
        "try: c.main(['weigh', '--help'])\n"
        "except SystemExit: pass\n"
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")


def readme() -> str:
    return (ROOT / "README.md").read_text()


def test_the_readme_tree_matches_the_disk() -> None:
    tree = re.search(r"```text\n(wdistill/.*?)```", readme(), re.S)
    assert tree is not None
    listed, folder = set(), ""
    for line in tree[1].splitlines():
        name = line.split("  ")[0].rstrip() if not line.startswith(" ") else line.split()[0]
        if not line.startswith(" "):
            folder = name
            listed.add(name)
        else:
            listed.add(folder + name)
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    on_disk = {path for path in tracked.stdout.splitlines() if (ROOT / path).exists()}
    package = {
        "wdistill/" + Path(path).relative_to("wdistill").parts[0] + ("/" if path.count("/") > 1 else "")
        for path in on_disk
        if path.startswith("wdistill/") and not path.endswith(("wdistill/__init__.py", "__main__.py", "py.typed"))
    }
    folders = {path.split("/")[0] + "/" for path in on_disk if "/" in path and not path.startswith(".")}
    assert listed == package | folders


def test_links_in_the_documents_lead_somewhere() -> None:
    for document in [path for folder in (".", "docs", "benchmarks", "experiments") for path in (ROOT / folder).glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)", document.read_text()):
            if not target.startswith("http"):
                assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_every_name_beside_an_equation_is_there() -> None:
    text = "".join((ROOT / "docs" / name).read_text() for name in ("equations.md", "theory.md", "best.md"))
    names = set(re.findall(r"`((?:training\.|theory\.|methods\.)?[a-z_]+)\.([A-Z]\w*\.)?((?!html)\w+)`", text))
    assert len(names) > 20
    for module, owner, name in names:
        found = importlib.import_module(f"wdistill.{module}")
        assert hasattr(getattr(found, owner.rstrip(".")) if owner else found, name), f"{module}.{owner}{name}"


def test_the_python_in_the_readme_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", readme(), re.S)
    assert blocks
    code = "\n".join(blocks)
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("document", ["README.md", "experiments/README.md"])
def test_the_commands_in_a_readme_parse(document: str) -> None:
    from wdistill.cli import parser

    commands = [
        line
        for block in re.findall(r"```bash\n(.*?)```", (ROOT / document).read_text(), re.S)
        for line in re.sub(r"\\\n\s*", "", block).splitlines()
    ]
    ours = [line.split("#")[0].split() for line in commands if line.startswith("wdistill ")]
    assert ours
    for words in ours:
        parser().parse_args(words[1:])


def test_every_make_target_in_the_documents_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    for document in ("README.md", "CONTRIBUTING.md", "experiments/README.md"):
        assert set(re.findall(r"(?:`|^)make ([a-z]+)", (ROOT / document).read_text(), re.M)) <= targets
