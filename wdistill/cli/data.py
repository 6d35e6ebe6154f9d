"""`wdistill data`: the official files of the paper's data sets, checked and prepared."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from wdistill.core.errors import bad_value, printable

EPILOG = """
official files are looked for in ROOT/NAME, as downloaded or unpacked, also one folder deeper; the prepared arrays go to
ROOT/NAME/prepared (celeba and imagenet: prepared-SIZE). A preparation that was interrupted resumes where it stopped.
exit codes: 0 done, 2 bad files or options, 3 cannot write, 5 another process is preparing, 75 run again to go on
"""


def add(commands: Any) -> None:
    """The command and its flags."""
    data = commands.add_parser(
        "data",
        help="get, check and prepare the paper's data sets",
        description="Download the official files that are missing, compare their checksums, and prepare the arrays.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    names = "svhn, cifar10, cifar100, fashion, mnist, celeba or imagenet (default: a table of all)"
    data.add_argument("name", nargs="?", metavar="NAME", help=names)
    data.add_argument("--list", action="store_true", help="a table of all data sets and their state")
    data.add_argument("--root", type=Path, metavar="ROOT", help="(default: $WDISTILL_DATA, or ~/.cache/wdistill)")
    data.add_argument("--size", type=int, metavar="N", help="of celeba's and imagenet's images (default: 64 and 224)")
    data.add_argument("--workers", type=int, metavar="N", help="processes that decode images (default: one a core)")
    data.add_argument("--unofficial", action="store_true", help="take other files of the same format, and say so everywhere")
    data.set_defaults(run=run_data)


def run_data(arguments: argparse.Namespace) -> None:
    from wdistill.core.threads import threads
    from wdistill.datasets.catalog import checked_folder, get_originals, prepare
    from wdistill.datasets.prepared import data_root, is_prepared

    name, root = arguments.name, data_root(arguments.root)
    if name is None or arguments.list:
        _print_table(root)
        return
    workers = threads() if arguments.workers is None else arguments.workers
    if workers < 1:
        remedy = "leave it out to use every core"
        raise bad_value("not a number of processes", "--workers", workers, "1 or more", remedy)
    target = checked_folder(name, root, arguments.size)
    before = is_prepared(target)
    if not before:
        print(printable(f"{name}: official files are expected in {root / name}"), flush=True)
        get_originals(name, root)
    dataset = prepare(name, root, arguments.size, workers=workers, unofficial=arguments.unofficial)
    print(printable(f"{name}: {'was prepared before, and is whole' if before else 'prepared'}: {target}"))
    shape = dataset.metadata["shape"]
    print(f"{len(dataset.train):,} train and {len(dataset.test):,} test rows, {dataset.classes:,} classes, {shape}")
    print(printable(f"{'official' if dataset.official else 'UNOFFICIAL'}: {dataset.source}"))
    if before and not dataset.official:
        print(printable(f"to prepare it from the official files, remove {target} and run this again"))


def _print_table(root: Path) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from wdistill.datasets.catalog import DATASETS, state_of

    title = Text(printable(f"Data sets in {root}"))
    table = Table("name", "classes", "shape", "train", "test", "state", title=title, title_justify="left")
    for name, info in DATASETS.items():
        shape = f"{info.channels}×{info.size}×{info.size}"
        counts = (f"{count:,}" for count in (info.classes, *info.rows))
        classes, train, test = counts
        table.add_row(*map(Text, (name, classes, shape, train, test, printable(state_of(name, root)))))
    Console().print(table)
