"""`wdistill export`: a trained student, to be used elsewhere."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add(commands: Any) -> None:
    """The command and its flags."""
    export = commands.add_parser(
        "export",
        help="a trained student alone, to be used elsewhere",
        description="Write a student as safetensors, with a JSON that rebuilds it, as a torch.export program, and with a\n"
        "model card (README.md): teacher, data, recipe, what it reaches with intervals, how to load it.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    export.add_argument("folder", type=Path, metavar="RUN", help="a finished run")
    export.add_argument("--output", required=True, type=Path, metavar="FOLDER", help="where the student goes")
    export.add_argument("--arm", metavar="A", help="whose student (default: the first arm that is not a control)")
    export.add_argument(
        "--epoch",
        choices=["final", "chosen"],
        default="final",
        help="after the last epoch, or after the one that was best on the validation rows (default: final)",
    )
    export.add_argument(
        "--onnx", action="store_true", help="an ONNX program too, checked with onnxruntime: pip install 'wdistill[onnx]'"
    )
    export.add_argument("--trust-code", action="store_true", help="let the run's own package.module:function be imported")
    export.set_defaults(run=run_export)


def run_export(arguments: argparse.Namespace) -> None:
    from wdistill.core.errors import printable
    from wdistill.training.export import export_run

    more = {"epoch": arguments.epoch, "trust_code": arguments.trust_code, "onnx": arguments.onnx}
    where = export_run(arguments.folder, arguments.output, arguments.arm, **more)
    chosen = f", after its epoch {where['epoch']}," if arguments.epoch == "chosen" else ""
    print(printable(f"the student of {where['arm']}{chosen} is in {arguments.output}: {', '.join(where['files'])}"))
