"""The parts of the documents that are made from the code: every public name, and every module with what it does.

    python -m tests.docs     write docs/api.md, the tables of modules in docs/architecture.md, and those of docs/adapters.md

The texts are the first sentences of docstrings: to change a line here, change it there. The results of examples are from
examples/adapters/results.jsonl, which the examples write.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import wdistill
from examples.adapters.paired import gain
from tests.house import STEP

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "wdistill"
API, ARCHITECTURE, ADAPTERS = (ROOT / "docs" / f"{name}.md" for name in ("api", "architecture", "adapters"))
EXAMPLES = ROOT / "examples" / "adapters"
WIDTH = 120
BEGIN, END = "<!-- modules made by `python -m tests.docs` -->", "<!-- end -->"
TRAINERS_BEGIN = "<!-- trainers made by `python -m tests.docs` -->"
TRAINERS = {  # by the example of each
    "scikit_learn": "scikit-learn",
    "lightgbm_student": "LightGBM",
    "xgboost_student": "XGBoost",
    "huggingface": "the Trainer of Hugging Face",
    "lightning_student": "Lightning",
    "keras_student": "Keras",
    "skorch_student": "skorch",
    "pytorch": "PyTorch",
    "cleanlab_issues": "cleanlab",
    "snorkel_votes": "snorkel",
}
RESULTS_BEGIN = "<!-- results made by `python -m tests.docs` -->"
ARGUMENTS = {"satimage": " KEEL", "phoneme": " KEEL", "tweets": " TWEETS", "CIFAR-10": " ROOT"}  # of an example, by its data
TEACHER, PLAIN = "the teacher itself", "teacher's targets + gold"
ARMS = {  # column → the names that examples have for it
    "teacher itself": (TEACHER,),
    "teacher's targets": (PLAIN,),
    "best targets": ("best targets", "best"),
    "best, of other rows": ("best targets, of other rows",),
    "labels alone": ("labels of gold", "labels of gold and of the teacher's rows", "gold alone"),
}
FURTHER = ("lite0",)  # examples of a trainer that has another one in the table
CHAPTERS = {  # rooms, in the order of a reader who begins with what people hold
    "answers": "Answers and gold labels",
    "weights": "Weights from arrays",
    "methods": "Beyond the paper",
    "training": "Training",
    "runs": "Runs",
    "models": "Networks",
    "tables": "Tables on many processes",
    "core": "Errors",
}
HEAD = """# The API

Every public name, generated from the code by `python -m tests.docs`. Import them from `wdistill`; those of training need
PyTorch, which is imported when the first of them is used. Shapes: n unlabeled rows, m validation rows (your gold labels),
K classes. Words are explained in the [glossary](glossary.md).

A rule, such as `debiased`, is called for weights. `debiased.explain(evidence)` returns them with the estimates behind
them, `debiased.fit(evidence)` a small frozen state that weighs any number of chunks, and `debiased.using(targets="hard")`
the rule with options filled in. Errors say what is wrong, where, what was found, what was expected, and what to do.
"""


def sentence(text: str | None) -> str:
    """The first sentence or line of a docstring, on one line."""
    first = " ".join((text or "").split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s+(?=[A-Z`])", first)[0]


# ---------------------------------------------------------------------------------------------------------------- the API


def api() -> str:
    """The page of all public names."""
    chapters: dict[str, list[str]] = {name: [] for name in CHAPTERS}
    for name in sorted(wdistill.__all__, key=lambda name: (name.lower(), name)):
        chapters[chapter_of(name)].append(entry(name))
    head = "\n\n".join(filled_lines(" ".join(part.split())) for part in HEAD.split("\n\n")) + "\n"
    return head + "".join(
        f"\n## {title}\n\n" + "\n".join(chapters[name]).rstrip() + "\n" for name, title in CHAPTERS.items()
    )


def chapter_of(name: str) -> str:
    rooms = getattr(wdistill, name).__module__.split(".")[1:]
    return "models" if "models" in rooms else str(rooms[0])


def entry(name: str) -> str:
    """One name: how it is called, what it does, and in which file."""
    value = getattr(wdistill, name)
    if isinstance(value, type) and issubclass(value, Exception | Warning):
        return filled_lines(f"- `{name}`: {summary(value)}", "  ")
    where = value.__module__.split(".")
    text = f"{summary(value)} ([{'/'.join(where[1:])}.py](../{'/'.join(where)}.py))"
    return f"### `{name}`\n\n```python\n{call(name, value)}\n```\n\n{filled_lines(text)}\n"


def summary(value: Any) -> str:
    """The first paragraph of a docstring on one line; of an arm, that of its method."""
    return " ".join((inspect.getdoc(getattr(value, "method", value)) or "").split("\n\n")[0].split())


def call(name: str, value: Any) -> str:
    """How a name is called: names, types and defaults of its arguments, wrapped between them."""
    if getattr(value, "_is_protocol", False):
        return f"class {name}(Protocol):\n    {', '.join(member for member in vars(value) if not member.startswith('_'))}"
    if hasattr(value, "method"):
        return f"{name}: {type(value).__name__}  # distill(…, rule={name})"
    signature = inspect.signature(value)
    shown = [argument(each) for each in signature.parameters.values()]
    kinds = [each.kind for each in signature.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        shown.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    whole = ", ".join(each.replace(" ", "\0") for each in shown)
    return filled_lines(f"{name}({whole}){gives(value, signature)}", "    ").replace("\0", " ")


def gives(value: Any, signature: inspect.Signature) -> str:
    if isinstance(value, type):
        return ""
    return " -> weights" if isinstance(value, wdistill.Rule) else f" -> {annotation(signature.return_annotation)}"


def filled_lines(text: str, indent: str = "") -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def argument(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    kind = "" if parameter.annotation is parameter.empty else f": {annotation(parameter.annotation)}"
    default = "" if parameter.default is parameter.empty else f" = {shown_default(parameter.default)}"
    return f"{stars}{parameter.name}{kind}{default}"


def annotation(value: Any) -> str:
    return value if isinstance(value, str) else getattr(value, "__name__", str(value))


def shown_default(value: Any) -> str:
    """A default as a reader would write it: functions, rules and arms by name, nothing with an address in memory."""
    if value.__class__.__name__ == "_HAS_DEFAULT_FACTORY_CLASS":
        return "…"
    name = getattr(value, "__name__", None) or getattr(value, "name", None)
    return str(name) if name else repr(value)


# ------------------------------------------------------------------------------------------------------------ the modules


def modules() -> str:
    """Tables of all modules, room by room, in the order in which rooms may import each other."""
    return "\n".join(table(PACKAGE / room) for room in STEP)


def table(room: Path) -> str:
    files = sorted((path for path in room.rglob("*.py") if path.name != "__init__.py"), key=lambda path: (path.parent, path))
    rows = [f"| [{path.relative_to(room)}](../{path.relative_to(ROOT)}) | {purpose(path)} |" for path in files]
    return "\n".join([f"### {room.name}", "", purpose(room / "__init__.py"), "", "| file | what |", "|---|---|", *rows, ""])


def purpose(path: Path) -> str:
    """What a module says of itself, in one sentence."""
    return sentence(ast.get_docstring(ast.parse(path.read_text()))).replace("|", "\\|")


def filled(text: str, begin: str, content: str) -> str:
    """A page with what is made of the code in its place."""
    return re.sub(f"{re.escape(begin)}.*?{re.escape(END)}", lambda _: f"{begin}\n{content}{END}", text, flags=re.S)


# ----------------------------------------------------------------------------------------------------------- the trainers


def trainers() -> str:
    """Every trainer with the lines of wdistill in its example, and the traps that its adapter closes."""
    head = ["| trainer | example | lines | what goes wrong by hand, and is closed |", "|---|---|---|---|"]
    rows = [
        f"| [{name}](#i-use-{name.lower().replace(' ', '-')}) | [{file}.py](../examples/adapters/{file}.py) "
        f"| {len(lines_in(file))} | {'; '.join(traps_in(file))} |"
        for file, name in TRAINERS.items()
    ]
    return "\n".join([*head, *rows, ""])


def lines_in(file: str) -> list[str]:
    """The lines of wdistill in an example: those between its marks."""
    text = (EXAMPLES / f"{file}.py").read_text()
    marked = re.findall(r"^ *# --- wdistill\n(.*?)^ *# ---\n", text, re.S | re.M)
    return [line for part in marked for line in part.splitlines() if line.strip()]


def traps_in(file: str) -> tuple[str, ...]:
    """The traps that an example names."""
    for node in ast.parse((EXAMPLES / f"{file}.py").read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "TRAPS":
            return tuple(ast.literal_eval(node.value))
    return ()


# ------------------------------------------------------------------------------------------- what the examples have printed


def trials_of_examples() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The trials that examples wrote, by example and data, in the order of the trainers."""
    lines = [json.loads(line) for line in (EXAMPLES / "results.jsonl").read_text().splitlines()]
    lines.sort(key=lambda line: [*TRAINERS, *FURTHER].index(line["example"]))
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for line in lines:
        found.setdefault((line["example"], line["data"]), []).append(line)
    return found


def results() -> str:
    """Two tables: students by what they are taught, and comparisons of other kinds."""
    wide, other, found = [], [], trials_of_examples()
    for (example, data), trials in found.items():
        base, arms = (
            trials[0]["base"],
            {arm: [each["accuracies"][arm] for each in trials] for arm in trials[0]["accuracies"]},
        )
        where = f"`python examples/adapters/{example}.py{ARGUMENTS.get(data, '')}` | {data}"
        columns = {name: next((arm for arm in names if arm in arms), "") for name, names in ARMS.items()}
        if base == PLAIN:
            wide.append(f"| {where} | {' | '.join(shown_arm(arms, arm) for arm in columns.values())} |")
        for arm in [each for each in arms if each != base and (base != PLAIN or each not in columns.values())]:
            other.append(f"| {where} | {arm} | {base}, {mean(arms[base])} | {better(arms[arm], arms[base])} |")
    (processors, commits), counts = told(found), {len(trials) for trials in found.values()}
    heads = [["command", "data", *ARMS], ["command", "data", "arm", "over", "points"]]
    tables = [[f"| {' | '.join(head)} |", "|---" * len(head) + "|"] for head in heads]
    of = "commits" if " and " in commits else "commit"
    said = f"Means over {' or '.join(map(str, sorted(counts)))} trials ± standard error. {processors}, {of} {commits}."
    return "\n".join([*tables[0], *wide, "", *tables[1], *other, "", said, ""])


def shown_arm(arms: dict[str, list[float]], arm: str) -> str:
    """The accuracy of the teacher and of its targets; of other arms, how much better they are than these."""
    if not arm:
        return ""
    return mean(arms[arm]) if arm in (TEACHER, PLAIN) else better(arms[arm], arms[PLAIN])


def better(values: list[float], known: list[float]) -> str:
    return gain(values, known).replace("-", "−")


def mean(values: list[float]) -> str:
    return f"{100 * np.mean(values):.2f}"


def told(found: dict[tuple[str, str], list[dict[str, Any]]]) -> list[str]:
    """On which processors and at which commits."""
    lines = [line for trials in found.values() for line in trials]
    return [" and ".join(sorted({line[name] for line in lines})) for name in ("processor", "commit")]


def adapters() -> str:
    page = filled(ADAPTERS.read_text(), TRAINERS_BEGIN, trainers())
    return filled(page, RESULTS_BEGIN, results())


def pages() -> dict[Path, Callable[[], str]]:
    """What is made, by file."""
    return {
        API: api,
        ARCHITECTURE: lambda: filled(ARCHITECTURE.read_text(), BEGIN, modules()),
        ADAPTERS: adapters,
    }


if __name__ == "__main__":
    for path, make in pages().items():
        path.write_text(make())
        print(f"written: {path.relative_to(ROOT)}")
