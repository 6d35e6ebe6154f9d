"""`wdistill weigh`: from tables of predictions to a file of weights, streaming, resumable, all or nothing.

Finished parts wait in a folder beside the output until all are there; then the output appears in one piece and the folder
goes. A part covers whole input files, so a job that was interrupted goes on behind its last finished part.
"""

from __future__ import annotations

import base64
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import wdistill
from wdistill import checks, outputs, states, store
from wdistill.errors import ConfigError, FileError, InputError, printable
from wdistill.ids import IdCheck
from wdistill.inspection import Histogram
from wdistill.joining import is_aligned
from wdistill.options import Options, check_options, make_rule
from wdistill.progress import Progress, progress
from wdistill.readers import Table, open_tables
from wdistill.task import Work, order_of, prepare, read_gold
from wdistill.validation import naming_ids

PART = 1 << 18  # rows after which a part ends with the file at hand


Prepare = Callable[[Sequence[str], Sequence[str], Sequence[str], Any], Work]  # validation, unlabeled, labeled, options


def weigh_files(
    validation: Sequence[str],
    unlabeled: Sequence[str],
    output: Path,
    labeled: Sequence[str],
    options: Options,
    prepare: Prepare = prepare,
) -> dict[str, Any]:
    """Run the whole job, by rules unless another work is prepared; returns the record that the output carries."""
    outputs.check_output(output)
    heard: list[str] = []
    with warnings.catch_warnings():
        hear(heard)
        task = prepare(validation, unlabeled, labeled, options)
        keep_inputs(output, [*validation, *unlabeled, *labeled])
        folder = output.with_name(f"{output.name}.parts")
        _refuse_foreign(folder)
        with store.owning(folder):
            _begin(folder, task)
            try:
                parts = _stream(task, folder, heard)
            except (InputError, FileError):
                if not any(folder.glob("part-*.parquet")):
                    _clear(folder)
                raise
            try:
                record = _assemble(task, folder, output, parts, heard)
            except InputError:  # repeated ids: no part of this is worth keeping
                _clear(folder)
                raise
            _clear(folder)
    return record


def keep_inputs(output: Path, sources: Sequence[str], option: str = "--output") -> None:
    """Refuse an output that would replace an input, or that a later run would take for one."""
    for source in sources:
        path = Path(source.partition("=")[2] if source.endswith(".npy") and "=" in source else source)
        clash = output.resolve() == path.resolve() or (output.resolve().parent == path.resolve() and path.is_dir())
        if clash or output.resolve().match(str(path.resolve())):
            raise ConfigError(
                "the output is among the inputs",
                where=f"{option} {output}",
                found=f"{source} is read",
                expected="an output of its own",
                remedy="write to another folder or under another name",
            )


OURS = ("part-*.parquet", ".*.tmp", "aligned-*", "keys-*", "job.json", "warnings.json", "output.tmp", "lock")


def _refuse_foreign(folder: Path) -> None:
    """The folder of parts is made and removed by us alone; one that is there already must be ours."""
    foreign = (
        [path.name for path in folder.iterdir() if not any(path.match(name) for name in OURS)] if folder.is_dir() else []
    )
    if foreign or (folder.exists() and not folder.is_dir()):
        raise ConfigError(
            "finished parts would go where something else is",
            where=str(folder),
            found=", ".join(foreign[:5]) or "a file",
            expected="nothing, or the parts of an earlier run",
            remedy="move it away, or choose another output",
        )


def _clear(folder: Path) -> None:
    """Remove what we put into the folder of parts, and the folder, if it is empty then."""
    for name in OURS:
        for path in folder.glob(name):
            store.remove(path)
    if not any(folder.iterdir()):
        store.remove(folder)


def hear(heard: list[str]) -> None:
    """Warnings go to standard error at once, each text once, and into the record."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = printable(str(message))
        if text not in heard:
            heard.append(text)
            with suppress(OSError):  # it is in the record, whoever reads the terminal
                print(f"warning: {text}", file=sys.stderr, flush=True)

    warnings.simplefilter("always")
    warnings.showwarning = show


def _fingerprint(task: Work) -> str:
    """What the finished parts depend on besides the unlabeled files, which each part names."""
    text = {
        "version": wdistill.__version__,
        "state": store.digest(task.state),
        "options": asdict(task.options),
        "files": [[str(path) for path in table.files] for table in task.tables],
        "others": [[list(each) for each in table.stamps] for table in task.tables[1:]],
    }
    return json.dumps(text, sort_keys=True)


def _begin(folder: Path, task: Work) -> None:
    """Keep the parts of the same job; anything else in our folder is of another job and goes."""
    text, plan = _fingerprint(task), folder / "job.json"
    if not plan.exists() or plan.read_text() != text:
        for path in folder.iterdir():
            if path.name != "lock":
                store.remove(path)
        store.write_bytes(plan, text.encode())


def _remember(folder: Path, heard: list[str]) -> None:
    """Keep the warnings so far for a run that goes on from here."""
    store.write_bytes(folder / "warnings.json", json.dumps(heard).encode())


def _stream(task: Work, folder: Path, heard: list[str]) -> list[Part]:
    if (folder / "warnings.json").exists():
        for text in json.loads((folder / "warnings.json").read_text()):
            checks.warn(text)
    for i, table in enumerate(task.tables[1:], 1):
        target = folder / f"aligned-{i}"
        if table in task.sides.values() and not is_aligned(target, order_of(task.tables[0])):
            store.remove(target)
            task.align(table, target)
            _remember(folder, heard)
    parts = _finished_parts(folder, task.tables[0])
    if parts:
        print(f"going on behind {parts[-1].next} finished files of an earlier run", file=sys.stderr, flush=True)
    base = task.tables[0]
    start, position = (parts[-1].next, sum(part.seen for part in parts)) if parts else (0, 0)
    with progress("weighing", base.rows) as tick:
        tick(position)
        for part in _weigh_parts(task, folder, start, position, tick):
            parts.append(part)
            _remember(folder, heard)
    tell_scaling(task.corrections)
    return parts


def tell_scaling(corrections: Mapping[str, float]) -> None:
    """Warn of columns of the unlabeled rows that were scaled, by the largest correction of each."""
    for side, correction in corrections.items():
        checks.warn(
            f"--unlabeled, column {side!r}: rows were scaled to sum to 1; the largest correction is {correction:.3g}"
        )


@dataclass(frozen=True)
class Part:
    """One finished part: where it lies, what it covers, and counts that the weights do not tell."""

    path: Path
    next: int  # the first input file behind it
    seen: int  # rows of the first table it covers
    kept: int  # rows it holds
    counts: dict[str, int]


def _finished_parts(folder: Path, base: Table) -> list[Part]:
    """Parts of an earlier run whose input files are unchanged; later ones are removed."""
    parts: list[Part] = []
    for path in sorted(folder.glob("part-*.parquet")):
        try:
            text = json.loads((pq.read_metadata(path).metadata or {}).get(outputs.RECORD, b"{}"))
        except (OSError, ValueError):
            text = {}
        expected = parts[-1].next if parts else 0
        stamps = [list(stamp) for stamp in base.stamps[expected : text.get("next", 0)]]
        if text.get("start") != expected or text.get("stamps") != stamps:
            store.remove(path)
            continue
        parts.append(Part(path, text["next"], text["seen"], text["kept"], text["counts"]))
    return parts


def _weigh_parts(task: Work, folder: Path, start: int, position: int, tick: Progress) -> Iterator[Part]:
    """Weigh file after file; a part ends with a file once it is large enough."""
    base = task.tables[0]
    rows = task.made(folder, start, position)
    ahead = next(rows, None)
    while ahead is not None:
        path = folder / f"part-{start:06d}.parquet"
        seen, kept_rows, counts = 0, 0, Counter[str]()
        with store.writing(path) as file:
            schema = task.schema(ahead[0].ids.type)
            with pq.ParquetWriter(file, schema) as writer:
                while ahead is not None:
                    chunk, made = ahead
                    if len(made.kept):
                        ids = chunk.ids.take(pa.array(made.kept))
                        writer.write_batch(pa.RecordBatch.from_arrays([ids, *made.columns], schema=schema))
                        counts.update(made.counts)
                    seen, kept_rows = seen + len(chunk.ids), kept_rows + len(made.kept)
                    tick(len(chunk.ids))
                    ahead = next(rows, None)
                    if ahead is not None and ahead[0].file != chunk.file and seen >= PART:
                        break
                stop = len(base.files) if ahead is None else ahead[0].file
                stamps = [list(stamp) for stamp in base.stamps[start:stop]]
                text = {"start": start, "next": stop, "stamps": stamps, "seen": seen, "kept": kept_rows, "counts": counts}
                writer.add_key_value_metadata({outputs.RECORD: json.dumps(text)})
        yield Part(path, stop, seen, kept_rows, dict(counts))
        start = stop


def _assemble(task: Work, folder: Path, output: Path, parts: list[Part], heard: list[str]) -> dict[str, Any]:
    """Check the ids of all parts, then write the output in one piece."""
    total = sum(part.kept for part in parts)
    if total == 0:
        raise InputError(
            "no unlabeled rows",
            where=f"--unlabeled {task.tables[0].files[0]}",
            found="0 rows",
            expected="at least 1 row to weigh",
            remedy="name the table with the rows that the teacher labeled",
        )

    def batches(columns: list[str] | None = None) -> Iterator[Any]:
        for part in parts:
            yield from pq.ParquetFile(part.path).iter_batches(1 << 16, columns=columns, use_threads=False)

    check, histogram = IdCheck(folder, total), Histogram()
    for batch in batches(["id", "weight"]):
        check.add(batch["id"])
        histogram = histogram.plus(batch["weight"].to_numpy())
    check.finish(lambda: (batch["id"] for batch in batches(["id"])), f"--unlabeled {task.tables[0].files[0]}")
    record = _record(task, parts, histogram, heard)
    assembly = outputs.Assembly(pq.read_schema(parts[0].path).remove_metadata(), total, batches)
    outputs.write(output, folder / "output.tmp", assembly, record)
    return record


def _record(task: Work, parts: list[Part], histogram: Histogram, heard: list[str]) -> dict[str, Any]:
    base, gold = task.tables[0], task.evidence
    counts = Counter[str]()
    for part in parts:
        counts.update(part.counts)
    return {
        "wdistill": wdistill.__version__,
        "options": asdict(task.options),
        "validation_rows": len(gold.validation_labels),
        "classes": gold.validation_teacher.shape[1],
        "unlabeled_files": len(base.files),
        "rows": sum(part.kept for part in parts),
        **counts,
        "histogram": asdict(histogram),
        "warnings": heard,
        **task.told,
    }


def describe_validation(validation: Sequence[str], options: Options) -> dict[str, Any]:
    """What the validation rows alone tell, as a record without weights."""
    heard: list[str] = []
    with warnings.catch_warnings():
        hear(heard)
        check_options(options, labeled=False)
        evidence, ids = read_gold(open_tables(validation, option="--validation"), options, ())
        with naming_ids(ids, "--validation"):
            fitted = make_rule(replace(options, rule=("debiased",)), None).fit(evidence)
    return {"options": asdict(options), "warnings": heard, "state": base64.b64encode(states.to_bytes(fitted)).decode()}
