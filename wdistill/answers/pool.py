"""Answers, gold labels and rows brought together: the classes, what every gold row was answered, and what was refused."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from wdistill.answers.classes import Classes, make_classes, ordered, plain, refuse_unknown
from wdistill.answers.drawn import Column, DrawnGold, find_drawn
from wdistill.answers.gold_labels import Annotated, GoldLabels, collect, labels_in, read_gold_labels, values_of
from wdistill.answers.ids import WITHOUT_IDS, text_ids
from wdistill.answers.parsed import SOURCES, Parsed
from wdistill.answers.read import BATCH, IDS, ROWS, AnswerBatch, AnswerFile, Columns, count_names, open_answers
from wdistill.answers.request import AnswerOptions, Sources
from wdistill.core import checks
from wdistill.core.errors import InputError, bad_input, bad_value
from wdistill.core.progress import progress
from wdistill.methods.best import check_enough_gold
from wdistill.methods.gold_design import GoldDesign
from wdistill.methods.metric_text import metric_of, written_out
from wdistill.tables.formats.table import Table, open_tables
from wdistill.tables.join import IdCheck, refuse_repeats
from wdistill.weights.confidence import Floats

KEYS = 1 << 22  # ids compared in memory
TEXTS = ("text", "review", "body", "content", "comment", "message", "document", "sentence", "question", "tweet")
LISTED = 1_000  # refused rows that are kept with their reasons


@dataclass(frozen=True, eq=False)
class AnswerRows:
    """Answers, and the rows that they are answers to."""

    files: tuple[AnswerFile, ...]
    rows: Table | None  # texts or inputs, where they stand in a table of their own
    row_schema: pa.Schema | None  # of that table, as its first file has it
    numbers: Mapping[str, int]  # the class of every gold row, by id
    classes: Classes
    options: AnswerOptions

    @property
    def value_columns(self) -> tuple[str, ...]:
        """The columns of texts or inputs."""
        return (self.options.text,) if self.options.text else self.options.inputs

    def batches(self, wanted: Sequence[str] = (), what: str = "reading answers") -> Iterator[AnswerBatch]:
        """All answers, file after file; refused rows are left out of none. `what` is done with them, as progress says."""
        yield from _read_files(self.files, self.classes, wanted, what)

    def unlabeled(self, parsed: Parsed) -> NDArray[np.bool_]:
        """Which rows (n,) are no gold rows, and have an answer that is used."""
        gold = pa.array(list(self.numbers), pa.string())
        kept = ~pc.is_in(parsed.ids, value_set=gold).to_numpy(zero_copy_only=False)
        return np.asarray(kept & parsed.answered if self.options.refusals == "drop" else kept)

    def value_batches(self, what: str = "reading rows") -> Iterator[tuple[pa.Array, Mapping[str, pa.Array], str]]:
        """Ids, texts or inputs, and place, of all rows, wherever they stand."""
        if self.rows is not None:
            yield from self.row_batches(what)
        else:
            batches = self.batches(self.value_columns, what)
            yield from ((batch.parsed.ids, batch.columns, batch.where) for batch in batches)

    def row_batches(
        self, what: str = "reading rows", columns: Sequence[str] | None = None
    ) -> Iterator[tuple[pa.Array, Mapping[str, pa.Array], str]]:
        """Ids, texts or inputs (or other columns), and place, of the rows in their own table."""
        assert self.rows is not None and self.row_schema is not None
        wanted = self.value_columns if columns is None else columns
        key = next(name for name in (self.options.id, *IDS) if name and name in self.row_schema.names)
        schema = pa.schema([self.row_schema.field(name) for name in (key, *wanted)])
        with progress(what, self.rows.rows_about) as tick:
            for location, batch in self.rows.batches(schema, ROWS):
                ids = text_ids(batch.column(key), key, str(location), location.first)
                yield ids, {name: batch.column(name) for name in wanted}, str(location)
                tick(batch.num_rows)


@dataclass(frozen=True, eq=False)
class AnswerPool(AnswerRows):
    """All that was named, opened; nothing but the gold labels has been read."""

    gold: GoldLabels
    drawn: DrawnGold  # how gold rows were drawn, by id

    @property
    def hint(self) -> str:
        """What could be named and was not: a column of texts."""
        there = [name for file in self.files for name in file.columns if name.casefold() in TEXTS]
        if not self.value_columns and all(file.form == BATCH for file in self.files):
            return "Batch files carry no texts: with --pool FILE and --text COLUMN, models of the texts correct the teacher."
        if self.value_columns or not there:
            return ""
        return f"The answers have a column {there[0]!r}: with --text {there[0]}, models of the texts correct the teacher."


def _read_files(files: Sequence[AnswerFile], classes: Classes, wanted: Sequence[str], what: str) -> Iterator[AnswerBatch]:
    with progress(what, sum(file.rows_about for file in files)) as tick:
        for file in files:
            for batch in file.read(classes, wanted):
                yield batch
                tick(len(batch.parsed.ids))


def open_pool(sources: Sources, options: AnswerOptions) -> AnswerPool:
    """Open the files, read the gold labels, and find the classes."""
    gold, rows = sources.gold, sources.rows
    _check(options, gold, rows)
    values = (options.text,) if options.text else options.inputs
    inside = options.label if gold is None else None
    told = (options.group, options.inclusion)
    used = tuple(name for name in (*values, inside, *told) if name)
    columns = Columns(options.id, options.answer, options.stated, used)
    files = tuple(open_answers(source, columns) for source in sources.answers)
    if inside is not None:
        labels = _labels_inside(files, inside, told)
    else:
        assert gold is not None
        labels = read_gold_labels(gold, options.label, options.gold_id or options.id)
    classes = _find_classes(files, labels, options)
    if options.metric is not None:  # a bad one is an error now, not after all has been read
        metric = written_out(options.metric)
        metric_of(metric, classes.names)
        options = replace(options, metric=metric)
    table = open_tables([rows], option="--pool")[0] if rows else None
    _check_columns(files, table, values)
    _check_ids(files, inside is not None)
    _check_id_names(files, table, labels, options)
    where = f"--gold {gold}" if gold else f"--label {inside}"
    drawn = find_drawn(labels, options.group, options.inclusion, where)
    schema, numbers = None if table is None else table.schema, labels_in(labels, classes, where)
    pool = AnswerPool(files, table, schema, numbers, classes, options, labels, drawn)
    if options.group is not None and drawn.groups is None:
        pool = replace(pool, drawn=replace(drawn, groups=_groups_elsewhere(pool, options.group, where)))
    return pool


def _check(options: AnswerOptions, gold: str | None, rows: str | None) -> None:
    both = "options that belong together"
    if options.text and options.inputs:
        raise bad_value("names the rows twice", "--text and --inputs", "both", "one of them", "leave one out")
    if gold is None and options.label is None:
        expected = "--gold FILE with id and label, or --label COLUMN of the answers that has labels on some rows"
        raise bad_value("no gold labels are named", "--gold", "nothing", expected, "label some hundred rows, and name them")
    if gold is None and options.gold_id is not None:
        raise bad_value("needs --gold FILE", "--gold-id", "labels in the answers", both, "leave it out")
    if rows and not (options.text or options.inputs):
        raise bad_value("needs --text COLUMN or --inputs COLUMN", "--pool", "neither", both, "name the column to read there")


def _check_columns(files: Sequence[AnswerFile], table: Table | None, values: Sequence[str]) -> None:
    for name in values:
        homes = [table.columns] if table is not None else [file.columns for file in files]
        if not all(name in columns for columns in homes):
            where = f"--pool {table.files[0]}" if table is not None else files[0].where
            found = f"columns {', '.join(homes[0]) or 'none: batch files carry answers alone'}"
            close = difflib.get_close_matches(name, homes[0], 1) or [each for each in homes[0] if each in TEXTS]
            remedy = f"did you mean {close[0]!r}?" if close else "name another column"
            if table is None:
                remedy += "; if another table has it, name that, with the ids of the answers: --pool FILE"
            raise bad_input(f"no column {name!r}", where, found, f"a column {name!r}", remedy)


def _check_ids(files: Sequence[AnswerFile], one_table: bool) -> None:
    """Rows are counted only where nothing is joined: in one table that has the labels too, or in an array by itself."""
    counted = [file for file in files if file.counts_rows]
    if counted and not (one_table and len(files) == 1) and not counted[0].where.endswith(".npy"):
        found, expected = f"columns {', '.join(counted[0].columns)}", "ids in a column 'id', as in the gold labels"
        remedy = "name the column of the ids: --id COLUMN" + WITHOUT_IDS
        raise bad_input("no ids", counted[0].where, found, expected, remedy)


def _check_id_names(files: Sequence[AnswerFile], table: Table | None, gold: GoldLabels, options: AnswerOptions) -> None:
    """Refuse names of columns of ids that nothing has, and a table of rows without ids."""
    columns = {str(name) for record in gold.records.values() for name in record}
    if options.gold_id is not None and options.gold_id not in columns:
        found, expected = f"columns {', '.join(sorted(columns))}"[:300], f"a column {options.gold_id!r}"
        raise bad_input("no such column", "--gold", found, expected, "correct --gold-id")
    there = table.columns if table is not None else ()
    if table is not None and not {*IDS, options.id} & {*there}:
        found, expected = f"columns {', '.join(there)}", "ids in a column 'id', as in the answers"
        raise bad_input("no ids", f"--pool {table.files[0]}", found, expected, "name the column of the ids: --id COLUMN")
    if options.id is not None and all(file.form == BATCH for file in files) and options.id not in {*columns, *there}:
        found = "batch output, whose ids are custom_id; no such column in --gold or --pool"
        raise bad_value(
            "names a column that nothing has", f"--id {options.id}", found, "a column that is there", "leave it out"
        )


def _groups_elsewhere(pool: AnswerPool, column: str, gold: str) -> Column:
    """The groups of annotated rows in the table of rows, or in the answers."""
    wanted = {*pool.gold.labels, *(row.id for row in pool.gold.several)}
    if pool.rows is not None and column in pool.rows.columns:
        batches = ((ids, values[column]) for ids, values, _ in pool.row_batches("reading groups", (column,)))
        where = f"--pool {pool.rows.files[0]}"
    elif all(column in file.columns for file in pool.files):
        batches = ((batch.parsed.ids, batch.columns[column]) for batch in pool.batches([column], "reading groups"))
        where = pool.files[0].where
    else:
        found = f"columns {', '.join(dict.fromkeys(name for file in pool.files for name in file.columns))}"[:300]
        expected = f"a column {column!r} in the gold labels, in the answers or in --pool"
        raise bad_input(f"no column {column!r}", f"--group {column}", found, expected, f"add it to {gold}, or correct it")
    found_groups = {
        key: value
        for ids, values in batches
        for key, value in zip(ids.to_pylist(), values.to_pylist(), strict=True)
        if key in wanted
    }
    return Column(f"{where}, column {column!r}", found_groups)


def _labels_inside(files: Sequence[AnswerFile], label: str, told: Sequence[str | None]) -> GoldLabels:
    """The labels of a column of the answers, with the columns that were `told`; rows without a label are unlabeled."""
    rows = list[Annotated]()
    nobody = Classes(("\0", "\1"))
    for file in files:
        if label not in file.columns:
            found = f"columns {', '.join(file.columns)}"
            raise bad_input(f"no column {label!r}", file.where, found, "the column of the gold labels", "correct --label")
    more = [name for name in told if name and all(name in file.columns for file in files)]
    for batch in _read_files(files, nobody, [label, *more], "reading labels"):
        columns = [batch.columns[name].to_pylist() for name in more]
        cells = zip(batch.parsed.ids.to_pylist(), batch.columns[label].to_pylist(), *columns, strict=True)
        rows += [
            Annotated(key, labels, dict(zip(more, others, strict=True)))
            for key, cell, *others in cells
            if (labels := tuple(values_of(cell)))
        ]
    return collect(f"column {label!r} of the answers", rows, f"--label {label}")


def _find_classes(files: Sequence[AnswerFile], gold: GoldLabels, options: AnswerOptions) -> Classes:
    """The classes: as they were named, or those of the gold labels and of the columns of the answers."""
    aliases = dict(alias.partition("=")[::2] for alias in options.alias)
    bad = [name for name, target in aliases.items() if not target]
    if bad:
        raise bad_value("this is no alias", "--alias", bad[0], "NAME=CLASS", "write --alias yes=positive, for example")
    if options.classes is not None:
        return make_classes(options.classes, aliases)
    others = {plain(name) for name in aliases}
    named = [name for file in files for name in file.names if not name.isdecimal()]
    known = [name for name in (*gold.labels.values(), *named) if plain(name) not in others]
    return make_classes(ordered(known), aliases, "gold labels")


# what was answered ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GoldRows:
    """Gold rows that have an answer, in the order of their ids."""

    ids: pa.Array
    labels: np.ndarray  # (m,) numbers of classes
    teacher: Floats  # (m, K)
    values: Mapping[str, pa.Array]  # texts or inputs of these rows
    design: GoldDesign = field(default_factory=GoldDesign)  # how these rows were drawn


@dataclass
class Survey:
    """Counts over all answers."""

    answers: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # by reason
    refusals: dict[str, str] = field(default_factory=dict)  # the first of them by id
    sources: Counter[str] = field(default_factory=Counter)  # of confidences
    named: Counter[int] = field(default_factory=Counter)  # answers by the class that they name
    outside: float = 0.0  # probability that went to no class, summed over the rows
    unknown: Counter[str] = field(default_factory=Counter)
    annotated: dict[str, int] = field(default_factory=dict)  # classes answered for rows with several labels, by id
    gold: GoldRows | None = None

    def add(self, parsed: Parsed) -> None:
        ids = parsed.ids
        self.answers += len(ids)
        self.refused.update(parsed.refused.values())
        for row, reason in parsed.refused.items():
            if len(self.refusals) < LISTED:
                self.refusals[ids[row].as_py()] = reason
        counts = np.bincount(parsed.source[parsed.answered], minlength=len(SOURCES))
        self.sources.update({name: int(count) for name, count in zip(SOURCES, counts, strict=True) if count})
        self.named.update(parsed.probabilities[parsed.answered].argmax(axis=1).tolist())
        self.outside += float(parsed.outside.sum())
        self.unknown.update(parsed.unknown)

    def unlabeled(self, pool: AnswerPool) -> int:
        """How many rows are no gold rows, and have an answer that is used."""
        assert self.gold is not None
        left_out = sum(self.refused.values()) if pool.options.refusals == "drop" else 0
        return self.answers - left_out - len(self.gold.ids)

    def said(self, pool: AnswerPool) -> str:
        """In one line."""
        names = ", ".join(dict.fromkeys(file.form for file in pool.files))
        confidence = " and ".join(f"{name} confidence" if name != "none" else "no confidence" for name in self.sources)
        refused = sum(self.refused.values())
        words = [f"{self.answers:,} answers: {names}", confidence, f"{len(pool.classes)} classes"]
        words += [f"{refused:,} refusals" if refused else "no refusals"]
        left = self.outside / max(1, self.answers - refused)
        words += [f"{left:.1%} of the probability outside the classes"] if left > 5e-4 else []
        return ", ".join(filter(None, words))


def survey(pool: AnswerPool, scratch: Path) -> Survey:
    """Read all answers once: count them, refuse what cannot be used, and keep those of the gold rows."""
    seen, check = Survey(), IdCheck(scratch, KEYS)
    wanted = pa.array(sorted(pool.numbers), pa.string())
    several = pa.array(sorted(row.id for row in pool.gold.several), pa.string())
    found: list[tuple[pa.Array, Floats, Mapping[str, pa.Array]]] = []
    values = pool.value_columns if pool.rows is None else ()
    for batch in pool.batches(values, "counting answers"):
        _refuse_confidence(batch)
        seen.add(batch.parsed)
        check.add(batch.parsed.ids)
        position = pc.is_in(batch.parsed.ids, value_set=wanted).to_numpy(zero_copy_only=False)
        if position.any():
            rows = np.flatnonzero(position & (batch.parsed.answered | (pool.options.refusals == "uniform")))
            columns = {name: column.take(pa.array(rows)) for name, column in batch.columns.items()}
            found.append((batch.parsed.ids.take(pa.array(rows)), usable(batch.parsed, pool)[rows], columns))
        asked = pc.is_in(batch.parsed.ids, value_set=several).to_numpy(zero_copy_only=False) & batch.parsed.answered
        answered = batch.parsed.probabilities[asked].argmax(axis=1).tolist()
        seen.annotated.update(zip(batch.parsed.ids.filter(pa.array(asked)).to_pylist(), answered, strict=True))
    check.finish(lambda: (batch.parsed.ids for batch in pool.batches()), pool.files[0].where)
    refuse_unknown(seen.unknown, seen.answers, pool.classes, pool.files[0].where)
    _check_named(pool, seen)
    seen.gold = _gold_rows(pool, found)
    return seen


def _check_named(pool: AnswerPool, seen: Survey) -> None:
    """Gold labels that no answer names: refused where all are, or one looks like another class; else a warning."""
    if pool.options.classes is not None:
        return
    counts = Counter(pool.numbers.values())
    unnamed = [number for number in range(len(pool.classes)) if counts[number] and not seen.named[number]]
    if len(unnamed) == len(counts):
        answered, labeled = ([pool.classes.names[number] for number in sorted(each)[:10]] for each in (seen.named, counts))
        found = f"answers that name {', '.join(answered) or 'no class'}"
        remedy = f"--alias {labeled[0]!r}={answered[0]!r} and so on" if answered else "correct the gold labels"
        expected = f"classes of the gold labels: {', '.join(labeled)}"
        raise bad_input("no answer names a class of the gold labels", pool.files[0].where, found, expected, remedy)
    for number in unnamed:
        name = pool.classes.names[number]
        near = pool.classes.nearest(name)
        found = f"{name!r} in {counts[number]:,} gold labels, and in no answer"
        if near is not None and seen.named[pool.classes.number(near)]:
            known = ",".join(pool.classes.names)
            remedy = f"--alias {name!r}={near!r} if that is meant; else name all classes: --classes {known}"
            raise bad_input(
                "a gold label looks like another class", "--gold", found, "classes as the answers name them", remedy
            )
        checks.warn(f"{found}: the teacher never says it; if it is another name for a class, add --alias {name!r}=CLASS")


def usable(parsed: Parsed, pool: AnswerRows) -> Floats:
    """Distributions (n, K) as they are used: refused rows have all classes alike, where that was wanted."""
    rows = parsed.probabilities
    if pool.options.refusals == "uniform" and parsed.refused:
        rows = rows.copy()
        rows[list(parsed.refused)] = 1 / rows.shape[1]
    return rows


def _refuse_confidence(batch: AnswerBatch) -> None:
    bad = list(batch.parsed.bad_confidence)
    if bad:
        ids = ", ".join(repr(batch.parsed.ids[row].as_py()) for row in bad[:5])
        found = f"{len(bad):,} of the first {batch.first + len(batch.parsed.ids):,} rows, such as id {ids}"
        expected = "numbers from 0 to 1, or percentages with their sign: 0.9 or '90 %'; distributions that sum to 1"
        raise bad_input(
            "stated confidences that are none",
            batch.where,
            found,
            expected,
            "divide percentages by 100, or write their sign; divide counts of votes by their sum; leave out words",
            np.array(bad) + batch.first,
        )


def _gold_rows(pool: AnswerPool, found: Sequence[tuple[pa.Array, Floats, Mapping[str, pa.Array]]]) -> GoldRows:
    """The gold rows that were answered, in the order of their ids, with their texts or inputs."""
    ids = pa.concat_arrays([part[0] for part in found]) if found else pa.array([], pa.string())
    missing = len(pool.numbers) - len(ids)
    if missing:
        absent = sorted(set(pool.numbers) - set(ids.to_pylist()))
        shown = ", ".join(map(repr, absent[:5]))
        text = f"{missing:,} of {len(pool.numbers):,} gold rows have no usable answer, such as {shown}"
        if not len(ids):
            example = next((batch.parsed.ids[0].as_py() for batch in pool.batches()), None)
            remedy = "write the ids of the answers into the gold labels: they are compared as text"
            raise bad_input(
                "no gold row has an answer", pool.gold.where, text, f"ids as in the answers, such as {example!r}", remedy
            )
        checks.warn(f"{text}: they are labels alone, and tell nothing of the teacher")
    check_enough_gold(len(ids), "--gold", "use more of them")
    order = pc.sort_indices(ids)
    ids = ids.take(order)
    teacher = np.concatenate([part[1] for part in found])[order.to_numpy()]
    labels = np.array([pool.numbers[key] for key in ids.to_pylist()])
    if pool.rows is None:
        values = {name: pa.concat_arrays([part[2][name] for part in found]).take(order) for name in pool.value_columns}
    else:
        values = _values_of(pool, ids)
    return GoldRows(ids, labels, teacher, values, pool.drawn.of(ids.to_pylist()))


def _values_of(pool: AnswerPool, ids: pa.Array) -> dict[str, pa.Array]:
    """Texts or inputs of these rows, from their own table."""
    parts: list[tuple[pa.Array, Mapping[str, pa.Array]]] = []
    for keys, columns, _ in pool.row_batches("finding gold rows"):
        rows = pa.array(np.flatnonzero(pc.is_in(keys, value_set=ids).to_numpy(zero_copy_only=False)))
        if len(rows):
            parts.append((keys.take(rows), {name: column.take(rows) for name, column in columns.items()}))
    assert pool.rows is not None
    there = pa.concat_arrays([keys for keys, _ in parts]) if parts else pa.array([], pa.string())
    refuse_repeats(there, f"--pool {pool.rows.files[0]}")
    position = pc.index_in(ids, value_set=there)
    absent = ids.filter(pc.is_null(position))
    if len(absent):
        found = f"{len(absent)} gold rows missing, such as {', '.join(map(repr, absent[:5].to_pylist()))}"
        where = f"--pool {pool.rows.files[0]}"
        raise bad_input("answers for rows that are not there", where, found, "every id of the answers", "add the rows")
    return {name: pa.concat_arrays([columns[name] for _, columns in parts]).take(position) for name in pool.value_columns}


def missing_rows(pool: AnswerRows, missing: int, total: int, such_as: Sequence[str] = (), named: str = "") -> InputError:
    """The error for ids, of answers or `named` elsewhere, that the table of rows does not have."""
    where = f"--pool {pool.rows.files[0]}" if pool.rows is not None else pool.files[0].where
    examples = f", such as {', '.join(map(repr, such_as[:5]))}" if such_as else ""
    found = f"{missing:,} of {total:,} {f'ids of {named}' if named else 'answers'} have no row there{examples}"
    what = "rows that are not there" if named else "answers for rows that are not there"
    expected, remedy = f"every id of {named or 'the answers'}", "add the rows, or leave these ids out"
    return bad_input(what, where, found, expected, remedy)


def names_in(sources: Sequence[str]) -> tuple[str, ...]:
    """The classes that answers name themselves, where nobody else has named any: those that are not rare."""
    seen = Counter[str]()
    for source in sources:
        seen.update(count_names(open_answers(source)))
    total = sum(seen.values())
    return ordered([name for name, count in seen.items() if count >= max(2, total / 200) and name])
