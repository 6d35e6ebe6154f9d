"""What a model card says of an exported student: how it is fed, loaded and asked, from its description, student.json."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from wdistill.report.card import StudentFacts, plain

TASKS = {
    "text": "text-classification",
    "table": "tabular-classification",
    **dict.fromkeys(("cnn", "mobilenet", "resnet_cifar", "resnet"), "image-classification"),
}
LOADING = """\
student = load_student("."{how})  # this folder
logits = student({call})
classes = student.decide(logits.softmax(1))  # numbers, as below"""
IMPORTS = {
    True: "import torch\nfrom wdistill import load_student\nfrom wdistill.text.integers import text_rows\n\n",
    False: "from wdistill import load_student\n\n",
}  # whether it reads texts
ROWS_OF_TEXTS = """\
rows = torch.from_numpy(text_rows(["a text", "another"]))  # (2, 512)
"""


def facts_of(description: Mapping[str, Any], parameters: int) -> StudentFacts:
    """Of a student with so many parameters; `description` is what `export_student` writes."""
    network, arguments = description["network"], description["arguments"]
    settings = ", ".join(f"{name} {value}" for name, value in arguments.items())
    kind = f"{network or 'a network of your own'}{f' with {settings}' if settings else ''}, {parameters:,} numbers stored"
    return StudentFacts(
        kind=kind,
        library="pytorch",
        task=TASKS.get(network, ""),
        inputs="\n".join(_inputs(description)),
        classes=tuple(description.get("class_names") or map(str, range(description["classes"]))),
        code=_code(description),
        notes=tuple(_notes(description)),
    )


def _inputs(description: Mapping[str, Any]) -> Iterator[str]:
    """What a row is, and what makes one."""
    shapes, types = description["input_shape"], description["input_dtype"]
    columns = description.get("columns", {})
    if description["network"] == "text":
        named = f" (in training, the column {plain(columns['text'])})" if "text" in columns else ""
        yield (
            f"It reads texts{named} as rows of whole numbers: hashed words and pairs of words. `text_rows` makes them; so "
            "does `row_of(text, 512)` of `wdistill/text/plain.py`, a file of plain Python that runs without wdistill."
        )
    elif isinstance(shapes, Mapping):
        yield "It reads several inputs by name, the first axis being the rows:"
        yield ""
        yield from (f"- {plain(name)}: {_shape(shape)}, {types[name]}" for name, shape in shapes.items())
    else:
        yield f"It reads rows `{_shape(shapes)}`, {types}, prepared as in training."
    if "inputs" in columns:
        yield "A row has these columns side by side, in this order; nothing may be missing:"
        yield ""
        yield from (f"- {plain(column['name'])}: {_column(column)}" for column in columns["inputs"])


def _shape(shape: Sequence[int]) -> str:
    return f"({', '.join(['n', *map(str, shape)])})"


def _column(column: Mapping[str, Any]) -> str:
    if "categories" not in column:
        return "a number" if column["width"] == 1 else f"{column['width']} numbers"
    names = ", ".join(plain(name) for name in column["categories"])
    return f"{len(column['categories'])} numbers, 1 for the category that it has and 0 for the others: {names}"


def _code(description: Mapping[str, Any]) -> str:
    network, is_named = description["network"], isinstance(description["input_shape"], Mapping)
    own = not description["arguments"]
    how = "" if not own else ", module=your_network" if network is None else ", trust_code=True"
    loading = LOADING.format(how=how, call="**rows" if is_named else "rows")
    return IMPORTS[network == "text"] + (ROWS_OF_TEXTS if network == "text" else "") + loading


def _notes(description: Mapping[str, Any]) -> Iterator[str]:
    """Other ways to use it, and what is not part of it."""
    if not description["arguments"] and description["network"] is not None:
        yield f"`trust_code=True` imports and runs {plain(description['network'])}, which builds its network."
    if description["program"]:
        yield f'Without wdistill: `torch.export.load("{description["program"]}").module()` is the same network.'
    if description["onnx"]:
        yield (
            f'Without PyTorch: `onnxruntime.InferenceSession("{description["onnx"]}")` takes the same rows and gives '
            "logits, for any number of rows."
        )
    decision = description.get("decision")
    if decision is not None and (any(decision["offsets"]) or decision["costs"]):
        yield (
            f"Its classes are decided for the metric {plain(decision['metric'])}, by offsets or costs that `student.decide` "
            "knows; a program gives logits alone."
        )
    yield "`wdistill verify FOLDER` compares all files with their SHA-256 in `student.json`."
