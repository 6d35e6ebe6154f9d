"""The look of every page: one style, one policy, and parts that templates share."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from wdistill.errors import printable
from wdistill.pages.words import listed, unbroken


def rendered(
    template: str,
    title: str,
    *,
    pictures: bool = False,
    filters: Mapping[str, Callable[..., Any]] | None = None,
    **values: Any,
) -> str:
    """A page that loads nothing and runs nothing; the same values give the same bytes.

    The template extends `house.html.jinja` and may import from `parts.html.jinja`. `pictures`: whether figures hold pixels.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    def shown(value: Any) -> Any:
        """Control characters of users are spelled out, not obeyed; Jinja escapes the rest."""
        return unbroken(printable(value)) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=FunctionLoader(_text),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"listed": listed, "svg": Markup, **(filters or {})}
    style = "\n" + _text("report.css")
    found = environment.from_string(template)
    return found.render(title=title, style=Markup(style), policy=_policy(style, pictures), **values)


def _text(name: str) -> str:
    return files("wdistill.pages").joinpath(name).read_text("utf-8")


def _policy(style: str, pictures: bool) -> str:
    """Nothing may be loaded or run; this very style is applied, and maps are pictures inside the page."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    images = " img-src data:;" if pictures else ""
    return f"default-src 'none'; style-src 'sha256-{digest}';{images} base-uri 'none'; form-action 'none'"
