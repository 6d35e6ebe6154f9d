"""A Matplotlib figure as SVG inside a page: no inline styles, unique ids, colours from the page's variables."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from wdistill.core.errors import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, safe for the colour-blind; the page sets the variables for light and dark mode
INK, GREY, PALE = "#333333", "#6b7280", "#d3d7de"
BLUE, ORANGE, GREEN, PURPLE, AMBER, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"
COLORS = {
    INK: "currentColor",
    GREY: "var(--grey)",
    PALE: "var(--pale)",
    BLUE: "var(--blue)",
    ORANGE: "var(--vermillion)",
    GREEN: "var(--green)",
    PURPLE: "var(--purple)",
    AMBER: "var(--orange)",
    SKY: "var(--sky)",
}
_SPACE = re.compile(r"\s+")
_FRACTION = re.compile(r"-?\d+\.\d{2,}")


def inline(figure: Figure, mark: str, label: str) -> str:
    """The figure as one `<svg>` element. `mark` begins its ids; `label` is for screen readers.

    Style attributes become plain ones, as the page's security policy allows no inline styles.
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", transparent=True, dpi=72, metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(buffer.getvalue())
    for element in root.iter():
        element.tag = element.tag.partition("}")[2]
        for name in [name for name in element.attrib if name.startswith("{")]:
            element.set(name.partition("}")[2], element.attrib.pop(name))
    for parent in list(root.iter()):
        for child in [child for child in parent if child.tag in ("metadata", "style")]:
            parent.remove(child)
    for element in root.iter():
        _plain(element)
    _rename(root, mark)
    for group in root.iter("g"):
        _hoist(group)
    _prune(root)
    view = root.get("viewBox", "")
    root.attrib.clear()
    root.attrib.update({"viewBox": view, "role": "img", "aria-label": printable(label)})
    return ElementTree.tostring(root, "unicode", short_empty_elements=True)


def _plain(element: ElementTree.Element) -> None:
    """Styles as attributes, colours as variables, numbers rounded to what is visible, no superfluous space."""
    for item in filter(None, element.attrib.pop("style", "").split(";")):
        name, _, value = item.partition(":")
        if name.strip() != "font-family":  # the page sets it
            element.set(name.strip(), value.strip().removesuffix("px"))
    for name, value in element.attrib.items():
        if name == "href" and value.startswith("data:"):
            element.set(name, _SPACE.sub("", value))
        else:
            short = _FRACTION.sub(_rounded, value)
            element.set(name, COLORS.get(short, _SPACE.sub(" ", short).strip()))
    if element.get("stroke") == "#ffffff":  # bars are separated by the background
        element.set("stroke", "var(--paper)")
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    element.text = (element.text or "").strip() or None
    element.tail = None


def _rounded(match: re.Match[str]) -> str:
    """Round to a tenth of a point; small numbers, such as a marker's outline, to a hundredth."""
    value = float(match[0])
    return f"{value:.{1 if abs(value) >= 10 else 2}f}".rstrip("0").rstrip(".")


def _rename(root: ElementTree.Element, mark: str) -> None:
    """Keep the ids that something refers to, as the mark and a number."""
    used = [name for element in root.iter() for key, value in element.attrib.items() if (name := _referred(key, value))]
    names = {name: f"{mark}-{i}" for i, name in enumerate(dict.fromkeys(used))}
    for element in root.iter():
        old = element.attrib.pop("id", "")
        for key, value in element.attrib.items():
            if name := _referred(key, value):
                element.set(key, value.replace(f"#{name}", f"#{names[name]}"))
        if old in names:
            element.set("id", names[old])


def _referred(key: str, value: str) -> str:
    """The id that an attribute refers to, if any."""
    if key == "href":
        return value[1:] if value.startswith("#") else ""
    return value[5:-1] if value.startswith("url(#") else ""


def _hoist(group: ElementTree.Element) -> None:
    """Move attributes that all marks of a group share to the group."""
    marks = list(group)
    if len(marks) > 1 and all(mark.tag == "use" for mark in marks):
        for name, value in list(marks[0].attrib.items()):
            if name not in ("x", "y", "href") and all(mark.get(name) == value for mark in marks):
                group.set(name, value)
                for mark in marks:
                    del mark.attrib[name]


def _prune(element: ElementTree.Element) -> None:
    """Replace groups without attributes by their children."""
    children: list[ElementTree.Element] = []
    for child in element:
        _prune(child)
        if child.tag == "g" and not child.attrib:
            children += list(child)
        else:
            children.append(child)
    element[:] = children
