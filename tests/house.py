"""Figures of the architecture, measured on the files as they are, beside what is wanted of them.

    python -m tests.house              the table; the traced commands take about a minute
    python -m tests.house --static     without them: a second or two
    python -m tests.house --places     with the places that every figure counts
    python -m tests.house --check      exit code 1 if a figure is not as wanted

Every figure is a function of its own, with its definition as docstring. Most return the places that they count.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).parent.parent

# The rooms of the package. A room may import those of earlier steps; rooms of one step do not import each other.
# The experiments import the library, and nothing imports them.
STEPS = (
    ("core",),
    ("weights",),
    ("methods",),
    ("text",),
    ("datasets", "runs", "tables"),
    ("answers",),
    ("report",),
    ("training",),
    ("adapters",),
    ("engines",),
    ("cli",),
)
STEP = {room: number for number, rooms in enumerate(STEPS) for room in rooms}
OUTSIDE = {"__main__": "cli"}  # a module that lies in no room, but belongs to one

RULE_KINDS = {"Rule", "MethodArm"}  # what an arm's rule can be
CONTEXTS = {"Context"}  # what a method is given
PRESENTING = {  # modules of the experiments that only summarise and present
    *("claims", "documents", "figures", "page", "reasons", "report", "statistics", "tables"),
}

Graph = Mapping[str, Collection[str]]  # module or room → those that it imports


@dataclass(frozen=True)
class Source:
    """One file of Python."""

    module: str  # dotted, of a package without __init__
    path: Path
    text: str

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def name(self) -> str:
        return self.module.rpartition(".")[2]

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(ast.parse(self.text)))

    @cached_property
    def at_import(self) -> list[ast.AST]:
        """The nodes that are run when the module is imported: none of a function's, none that is for type checking only."""
        return list(_run_at_import(self.nodes[0]))

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        return [node for node in self.nodes if isinstance(node, ast.ClassDef)]

    @cached_property
    def calls(self) -> list[ast.Call]:
        return [node for node in self.nodes if isinstance(node, ast.Call)]

    @cached_property
    def code(self) -> set[int]:
        """Numbers of the lines that are neither blank nor comment nor docstring."""
        lines = enumerate(self.lines, 1)
        written = {number for number, line in lines if line.strip() and not line.lstrip().startswith("#")}
        return written - {number for node in self.nodes for number in _docstring(node)}

    def at(self, node: ast.expr | ast.stmt | ast.pattern) -> str:
        return f"{self.module}:{node.lineno}"


@dataclass(frozen=True)
class Row:
    """One figure. All that is wanted are upper bounds; a figure that cannot be measured is not reached."""

    name: str
    measured: float | None
    wanted: float | None = None  # None: for information only
    places: tuple[str, ...] = ()
    unit: str = ""

    @property
    def reached(self) -> bool | None:
        return None if self.wanted is None else self.measured is not None and self.measured <= self.wanted


def read(root: Path, folder: str) -> list[Source]:
    """All modules below a folder of the repository."""
    paths = sorted(path for path in (root / folder).rglob("*.py") if "__pycache__" not in path.parts)
    return [Source(_module(path.relative_to(root)), path, path.read_text()) for path in paths]


def _run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    if later or (isinstance(node, ast.If) and _last(node.test) == "TYPE_CHECKING"):
        return
    yield node
    for child in ast.iter_child_nodes(node) if isinstance(node, ast.Module | ast.stmt | ast.ExceptHandler) else ():
        yield from _run_at_import(child)


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


# Sizes


def root_entries(package: Path) -> tuple[str, ...]:
    """Modules and folders side by side at the root of the package."""
    usual = {"__init__.py", "__main__.py", "py.typed", "__pycache__"}
    return tuple(sorted(path.name for path in package.iterdir() if path.name not in usual and path.name[0] != "."))


def line_count(sources: Iterable[Source]) -> int:
    """All lines, blank ones and comments too."""
    return sum(len(source.lines) for source in sources)


def largest_class(sources: Iterable[Source], size: Callable[[ast.ClassDef], int]) -> tuple[int, str]:
    """The largest size of a class, and whose it is."""
    return max((size(node), f"{source.module}.{node.name}") for source in sources for node in source.classes)


def class_lines(node: ast.ClassDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def class_methods(node: ast.ClassDef) -> int:
    """Properties and special methods too."""
    return sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)


# Imports


def import_graph(sources: Sequence[Source], *, at_import: bool = False) -> dict[str, set[str]]:
    """Who imports whom, anywhere: in functions and for type checking too, unless only what is run `at_import` is asked for.

    The root package itself is left out.
    """
    known = {source.module for source in sources}
    roots = {name for name in known if "." not in name}
    found = {source: _imported(source, source.at_import if at_import else source.nodes, known) for source in sources}
    return {source.module: found[source] - roots - {source.module} for source in sources if source.module not in roots}


def _imported(source: Source, nodes: Iterable[ast.AST], known: Collection[str]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = _base(node, source)
            found |= {name if (name := f"{base}.{alias.name}") in known else base for alias in node.names}
    return found & set(known)


def _base(node: ast.ImportFrom, source: Source) -> str:
    """The module that names are imported from."""
    package = source.module if source.is_package else source.module.rpartition(".")[0]
    return importlib.util.resolve_name("." * node.level + (node.module or ""), package)


def reachable(graph: Graph, start: str) -> set[str]:
    """All that can be reached from here in one step or more."""
    found: set[str] = set()
    waiting = list(graph.get(start, ()))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph.get(name, ())
    return found


def cycles(graph: Graph) -> list[frozenset[str]]:
    """The largest sets whose members all reach each other."""
    reach = {name: reachable(graph, name) for name in graph}
    found = {
        frozenset(other for other in reach[name] if name in reach.get(other, ())) for name in graph if name in reach[name]
    }
    return sorted(found, key=sorted)


def layers(graph: Graph) -> int:
    """The modules on the longest path of imports, a cycle counting as one."""
    knot = {name: knot for knot in cycles(graph) for name in knot}
    depths: dict[frozenset[str], int] = {}

    def depth(name: str) -> int:
        members = knot.get(name, frozenset({name}))
        if members not in depths:
            below = {other for member in members for other in graph.get(member, ())} - members
            depths[members] = 1 + max(map(depth, below), default=0)
        return depths[members]

    return max(map(depth, graph), default=0)


def rooms_there(root: Path) -> int:
    """The rooms that are there: each imports only rooms before it."""
    return sum((root / "wdistill" / room).is_dir() for room in STEP)


def package_cycles(sources: Sequence[Source]) -> list[frozenset[str]]:
    """Cycles of imports where a module also stands for the packages it lies in, since Python runs their __init__ first.

    Most are a package that imports its own modules, which import each other. What is imported later makes no cycle.
    """
    graph = import_graph(sources, at_import=True).items()
    return cycles({name: {each for other in others for each in _and_packages(other)} - {name} for name, others in graph})


def _and_packages(module: str) -> Iterator[str]:
    parts = module.split(".")
    return (".".join(parts[:end]) for end in range(2, len(parts) + 1))


def room_of(module: str) -> str | None:
    """The room of a module of the package; None for what has none, such as a part that is to leave the package."""
    first = f"{module}.".split(".")[1]
    return first if first in STEP else OUTSIDE.get(first)


def may_import(room: str, other: str) -> bool:
    """What the order of the rooms says."""
    return room == other or STEP[other] < STEP[room]


def room_edges(graph: Graph) -> Iterator[tuple[str, str, str, str]]:
    """Every import between modules that have a room: module, its room, the imported module, its room."""
    for module, others in graph.items():
        for other in sorted(others):
            rooms = room_of(module), room_of(other)
            if rooms[0] and rooms[1]:
                yield module, rooms[0], other, rooms[1]


def against_order(graph: Graph) -> tuple[str, ...]:
    """Imports that the order of the rooms does not allow."""
    return tuple(f"{module} → {other}" for module, room, other, its in room_edges(graph) if not may_import(room, its))


def room_graph(graph: Graph) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for _, room, _, other in room_edges(graph):
        found[room] |= {other} - {room}
    return dict(found)


# Names


def two_homes(sources: Iterable[Source]) -> tuple[str, ...]:
    """Names that classes of several modules have, private and public ones."""
    homes: dict[str, set[str]] = defaultdict(set)
    for source in sources:
        for node in source.classes:
            homes[node.name].add(source.module)
    return tuple(f"{name}: {', '.join(sorted(found))}" for name, found in homes.items() if len(found) > 1)


def named_ing(sources: Iterable[Source]) -> tuple[str, ...]:
    """Modules, not packages, whose name ends in -ing."""
    return tuple(source.module for source in sources if source.name.endswith("ing") and not source.is_package)


def same_basename(sources: Iterable[Source]) -> tuple[str, ...]:
    """Pairs of modules, not packages, that have one name in two folders: of the package's root, or of the experiments'.

    Files of commands do not count: they are named like the command, and so is often the module that does its work.
    """
    named_like_commands = ("wdistill.cli.", "wdistill.__main__", "experiments.leaderboard.__main__")
    modules = [s.module for s in sources if not s.is_package and not s.module.startswith(named_like_commands)]
    pairs = combinations(modules, 2)
    return tuple(f"{a}, {b}" for a, b in pairs if a.rpartition(".")[2] == b.rpartition(".")[2] and _folder(a) != _folder(b))


def _folder(module: str) -> list[str]:
    return module.split(".")[:-1][:2]


# Duties


def kind_checks(sources: Sequence[Source]) -> tuple[str, ...] | None:
    """isinstance, or a class pattern, on a kind of rule outside the module that defines rules; None if there is no Rule."""
    homes = _homes(sources, {"Rule"})
    if not homes:
        return None
    return tuple(
        source.at(node)
        for source in sources
        if source.module not in homes
        for node in source.nodes
        if isinstance(node, ast.Call | ast.MatchClass) and _checked_kinds(node) & RULE_KINDS
    )


def _checked_kinds(node: ast.Call | ast.MatchClass) -> set[str]:
    if isinstance(node, ast.MatchClass):
        return {_last(node.cls)}
    return {_last(each) for each in ast.walk(node.args[1])} if _last(node.func) == "isinstance" else set()


def context_builds(sources: Sequence[Source]) -> tuple[str, ...] | None:
    """Calls that construct a method's context; another class of the same name is none. None if there is no such class."""
    homes = _homes(sources, CONTEXTS)
    ours = {module for module in homes if room_of(module) == "methods"}
    if not ours:
        return None
    inside = [source for source in sources if source.module in ours or source.module not in homes]
    return tuple(source.at(node) for source in inside for node in source.calls if _last(node.func) in CONTEXTS)


def _homes(sources: Iterable[Source], names: Collection[str]) -> set[str]:
    """The modules that define a class of one of these names."""
    return {source.module for source in sources for node in source.classes if node.name in names}


def rule_files(sources: Sequence[Source]) -> tuple[str, ...] | None:
    """The files that name a built-in rule in code, of that rule which the fewest do: a new one needs about as many.

    In code: as a name, an attribute, an import or a string that is nothing but the name; its own file and __init__ count.
    A rule is a function with the decorator `rule`; None if there is none.
    """
    named = {source.module: _named(source) for source in sources}
    places = [tuple(module for module, names in named.items() if rule in names) for rule in _rules(sources)]
    return min(places, key=len, default=None)


def _rules(sources: Iterable[Source]) -> Iterator[str]:
    for source in sources:
        for node in source.nodes:
            if isinstance(node, ast.FunctionDef) and "rule" in {_last(each) for each in node.decorator_list}:
                yield node.name


def _named(source: Source) -> set[str]:
    """Every identifier that a file's code uses or defines, and every string."""
    found = {_last(node) for node in source.nodes}
    found |= {node.name for node in source.nodes if isinstance(node, ast.alias | ast.FunctionDef | ast.ClassDef)}
    return found | {node.value for node in source.nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def _last(node: ast.AST) -> str:
    """The last part of a dotted name, or of what is called by one."""
    if isinstance(node, ast.Call):
        return _last(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


# Errors


def error_share(sources: Sequence[Source]) -> float:
    """Percent of the code's lines that lie in a call of an error class: one that the sources define and that ends in Error.

    A call of a helper that makes an error is not counted, the call of the class inside of the helper is.
    """
    names = {node.name for source in sources for node in source.classes if node.name.endswith("Error")}
    lines = {
        source.module: {n for call in source.calls if _last(call.func) in names for n in _span(call)} for source in sources
    }
    return _share(sources, lines)


def raise_share(sources: Sequence[Source]) -> float:
    """Percent of the code's lines that lie in a raise statement, whatever it raises and whoever makes it."""
    raises = {source.module: [node for node in source.nodes if isinstance(node, ast.Raise)] for source in sources}
    return _share(sources, {module: {n for node in nodes for n in _span(node)} for module, nodes in raises.items()})


def _share(sources: Iterable[Source], lines: Mapping[str, Collection[int]]) -> float:
    return 100 * sum(map(len, lines.values())) / max(1, sum(len(source.code) for source in sources))


def _docstring(node: ast.AST) -> range:
    if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or not node.body:
        return range(0)
    first = node.body[0]
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return _span(first) if is_text else range(0)


def _span(node: ast.expr | ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


# Experiments and documents


def without_theory(sources: Iterable[Source]) -> list[Source]:
    return [source for source in sources if "theory" not in source.module.split(".")]


def presenting_share(sources: Sequence[Source]) -> float:
    """Percent of the lines that are in modules which only summarise and present."""
    return 100 * line_count(source for source in sources if source.name in PRESENTING) / max(1, line_count(sources))


def first_code(document: str) -> int | None:
    """The line at which the first block of Python begins."""
    return next((number for number, line in enumerate(document.splitlines(), 1) if line.startswith("```python")), None)


# The table


def static_rows(root: Path) -> list[Row]:
    """All figures that are read from the files."""
    package, experiments = read(root, "wdistill"), read(root, "experiments")
    everything, without = [*package, *experiments], without_theory(experiments)
    return [
        *size_rows(root / "wdistill", package),
        *import_rows(root, package),
        counted("class names with two homes", two_homes(everything), 0),
        counted("modules ending in -ing", named_ing(package), 2),
        counted("same basename in two rooms, commands aside", same_basename(everything), 3),
        largest("largest class, lines", largest_class(package, class_lines), 150),
        largest("largest class, methods", largest_class(package, class_methods), 10),
        counted("checks of a rule's kind", kind_checks(package), 2),
        counted("places that build a context", context_builds(package), 1),
        counted("files that a new rule needs", rule_files(package), 2),
        Row("share of code in error classes' calls", error_share(package), 7, unit=" %"),
        Row("share of code in raise statements", raise_share(package), unit=" %"),
        Row("experiments, lines", line_count(without), 4_300),
        Row("experiments, share that presents", presenting_share(without), 30, unit=" %"),
        *document_rows((root / "README.md").read_text()),
    ]


def size_rows(folder: Path, package: Sequence[Source]) -> list[Row]:
    return [
        counted("things at the package root", root_entries(folder), 11),
        Row("modules in the package", len(package), 105),
        Row("package lines", line_count(package), 17_800),
    ]


def import_rows(root: Path, package: Sequence[Source]) -> list[Row]:
    graph = import_graph(package)
    return [
        Row("import layers: rooms", rooms_there(root), 11),
        Row("longest chain of imports", layers(graph)),
        counted("imports against the order of rooms", against_order(graph), 0),
        counted("cycles of rooms", together(cycles(room_graph(graph))), 0),
        counted("cycles through packages", together(package_cycles(package)), 0),
    ]


def document_rows(readme: str) -> list[Row]:
    return [
        Row("README lines", len(readme.splitlines()), 120),
        Row("README, line of the first code", first_code(readme), 25),
    ]


def walk_rows() -> list[Row]:
    """The files that commands enter, which takes a while."""
    from tests.walks import walks

    return [counted(f"files entered: {name}", files, wanted) for name, files, wanted in walks()]


def counted(name: str, places: Collection[str] | None, wanted: int) -> Row:
    return Row(name, None if places is None else len(places), wanted, tuple(places or ()))


def largest(name: str, found: tuple[int, str], wanted: int) -> Row:
    return Row(name, found[0], wanted, (found[1],))


def together(groups: Iterable[Collection[str]]) -> tuple[str, ...]:
    return tuple(", ".join(sorted(group)) for group in groups)


def shown(rows: Sequence[Row], places: bool = False) -> str:
    """The table as text."""
    lines = [f"{'':38}{'measured':>10}{'wanted':>12}  reached"]
    for row in rows:
        wanted = "" if row.wanted is None else f"≤ {number(row.wanted, row.unit)}"
        answer = {None: "", True: "yes", False: "no"}[row.reached]
        lines.append(f"{row.name:38}{number(row.measured, row.unit):>10}{wanted:>12}  {answer}".rstrip())
        lines += [f"    {place}" for place in row.places if places]
    return "\n".join(lines)


def number(value: float | None, unit: str) -> str:
    if value is None:
        return "?"
    return f"{value:.1f}{unit}" if unit else f"{value:,}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.house", description="Figures of the architecture.")
    parser.add_argument("--static", action="store_true", help="leave out the traced commands")
    parser.add_argument("--places", action="store_true", help="print the places that a figure counts")
    parser.add_argument("--check", action="store_true", help="exit code 1 if a figure is not as wanted")
    asked = parser.parse_args(argv)
    rows = static_rows(ROOT) + ([] if asked.static else walk_rows())
    print(shown(rows, asked.places))
    return int(asked.check and any(row.reached is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
