"""A Matplotlib figure as SVG inside a page: no styles of its own, ids that cannot clash, colours that follow the page."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from wdistill.errors import printable
from wdistill.inspection import BLUE, GREY, INK, ORANGE, PALE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, safe for the colour-blind; the page says what each variable is in the light and in the dark
COLORS = {
    INK: "currentColor",
    GREY: "var(--grey)",
    PALE: "var(--pale)",
    BLUE: "var(--blue)",
    ORANGE: "var(--vermillion)",
    "#009e73": "var(--green)",
    "#cc79a7": "var(--purple)",
    "#e69f00": "var(--orange)",
    "#56b4e9": "var(--sky)",
}
_SPACE = re.compile(r"\s+")
_FRACTION = re.compile(r"-?\d+\.\d{2,}")


def inline(figure: Figure, mark: str, label: str) -> str:
    """The figure as one `<svg>` element. `mark` begins its ids; `label` is what a screen reader says.

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
    """Styles as attributes, colours as variables, numbers as fine as an eye can see, no space that nobody needs."""
    for item in filter(None, element.attrib.pop("style", "").split(";")):
        name, _, value = item.partition(":")
        if name.strip() != "font-family":  # the page's own
            element.set(name.strip(), value.strip().removesuffix("px"))
    for name, value in element.attrib.items():
        if name == "href" and value.startswith("data:"):
            element.set(name, _SPACE.sub("", value))
        else:
            short = _FRACTION.sub(_rounded, value)
            element.set(name, COLORS.get(short, _SPACE.sub(" ", short).strip()))
    if element.get("stroke") == "#ffffff":  # bars are parted by what is behind them
        element.set("stroke", "var(--paper)")
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    element.text = (element.text or "").strip() or None
    element.tail = None


def _rounded(found: re.Match[str]) -> str:
    """To a tenth of a point; what is small, such as a marker's outline, to a hundredth."""
    value = float(found[0])
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
    """What all the marks of a group have in common is said once."""
    marks = list(group)
    if len(marks) > 1 and all(mark.tag == "use" for mark in marks):
        for name, value in list(marks[0].attrib.items()):
            if name not in ("x", "y", "href") and all(mark.get(name) == value for mark in marks):
                group.set(name, value)
                for mark in marks:
                    del mark.attrib[name]


def _prune(element: ElementTree.Element) -> None:
    """Groups that say nothing make room for what is in them."""
    children: list[ElementTree.Element] = []
    for child in element:
        _prune(child)
        if child.tag == "g" and not child.attrib:
            children += list(child)
        else:
            children.append(child)
    element[:] = children
