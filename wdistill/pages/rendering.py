"""A template filled in, in the look of the house. The page loads nothing and runs nothing: its policy forbids both."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from wdistill.errors import printable
from wdistill.pages import words


def render(template: str, filters: Mapping[str, Callable[..., Any]], *, pictures: bool = False, **values: Any) -> str:
    """One HTML page. The template is also given `style` and `policy`, and the filter `svg` for what is drawn already."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    def shown(value: Any) -> Any:
        """Control characters of users are spelled out, not obeyed; Jinja escapes the rest."""
        return words.unbroken(printable(value)) if isinstance(value, str) and not isinstance(value, Markup) else value

    style = "\n" + files("wdistill.pages").joinpath("report.css").read_text("utf-8")
    environment = Environment(
        autoescape=True, finalize=shown, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {**filters, "svg": Markup}
    return environment.from_string(template).render(style=Markup(style), policy=_policy(style, pictures), **values)


def _policy(style: str, pictures: bool) -> str:
    """Nothing may be loaded or run; this very style is applied, and maps are pictures inside the page."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    images = " img-src data:;" if pictures else ""
    return f"default-src 'none'; style-src 'sha256-{digest}';{images} base-uri 'none'; form-action 'none'"
