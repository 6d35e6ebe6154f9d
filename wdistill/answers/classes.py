"""The names of the classes, and what was written for them: matched whatever its case, blanks, quotes or trailing stop."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from wdistill.core.errors import bad_input, bad_value

MARKS = " \t\r\n\"'`*_“”‘’«»()[]<>{}"  # around a name
STOPS = ".!,;:"  # behind it
LEADS = re.compile(r"(?:the )?(?:final )?(?:answer|label|class|category|prediction|sentiment)(?: is)?\s*[:=]\s*")
NUMBER = re.compile(r"(-?\d+)\.0+")
LONGEST = 100  # characters of a name; more is prose
MOST = 10_000  # classes


def plain(text: object) -> str:
    """A name without case, quotes, trailing stop, and with single blanks; whole numbers as integers."""
    words = unicodedata.normalize("NFKC", str(text)).casefold()
    while True:
        bare = " ".join(words.split()).strip(MARKS).rstrip(STOPS)
        if bare == words:
            break
        words = bare
    whole = NUMBER.fullmatch(words)
    return whole[1] if whole else words


@dataclass(frozen=True)
class Classes:
    """The classes in their order, and other names for them."""

    names: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)  # what is written for a class → its name

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def index(self) -> dict[str, int]:
        """The number of the class, by every plain name for it."""
        numbers = {plain(name): number for number, name in enumerate(self.names)}
        return numbers | {plain(alias): numbers[plain(name)] for alias, name in self.aliases.items()}

    def number(self, text: object) -> int:
        """The number of the class that a text names; −1 where it names none."""
        if text is None or len(str(text)) > 10 * LONGEST:
            return -1
        words = plain(text)
        if words in self.index:
            return self.index[words]
        return self.index.get(plain(LEADS.sub("", words, count=1)), -1)

    def nearest(self, text: str) -> str | None:
        """The class whose name is most like a text, begins with it, or is its beginning."""
        words = plain(text)
        others = [name for name in self.index if name != words]
        begun = [name for name in others if min(len(name), len(words)) > 1 and _either_begins(name, words)]
        close = begun or difflib.get_close_matches(words, others, 1, 0.75)
        return self.names[self.index[close[0]]] if close else None


def _either_begins(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def make_classes(names: Sequence[object], aliases: Mapping[str, str] | None = None, where: str = "--classes") -> Classes:
    """Classes of these names, checked: at least two, each once, and aliases of classes that are there."""
    texts, aliases = tuple(str(name).strip() for name in names), dict(aliases or {})
    twice = [name for name, count in Counter(map(plain, texts)).items() if count > 1]
    if len(texts) < 2 or not all(map(plain, texts)) or twice or len(texts) > MOST:
        found = f"{twice[0]!r} twice" if twice else f"{len(texts)} names: {', '.join(map(repr, texts[:5]))}"
        expected = f"2 to {MOST:,} names that differ in more than case, blanks, quotes or a trailing stop"
        remedy = "name every class once" if len(texts) > 1 else "name all classes: --classes A,B,…"
        raise bad_value("these are no classes", where, found, expected, remedy)
    classes = Classes(texts)
    for alias, name in aliases.items():
        if classes.number(name) < 0 or classes.number(alias) not in (-1, classes.number(name)):
            expected = f"ALIAS=CLASS with one of {', '.join(texts[:10])}, and an alias that is no class itself"
            raise bad_value("this is no alias", "--alias", f"{alias}={name}", expected, "correct the name of the class")
    return Classes(texts, {alias: texts[classes.number(name)] for alias, name in aliases.items()})


def ordered(names: Iterable[object]) -> tuple[str, ...]:
    """Each name once, as it is written most often: numbers by their size, other names by the alphabet."""
    written: dict[str, Counter[str]] = {}
    for name in names:
        written.setdefault(plain(name), Counter())[str(name).strip()] += 1
    shown = {key: max(sorted(spellings), key=spellings.__getitem__) for key, spellings in written.items()}
    numeric = all(re.fullmatch(r"-?\d+", key) for key in shown)
    return tuple(shown[key] for key in sorted(shown, key=int if numeric else None))


def refuse_unknown(unknown: Mapping[str, int], total: int, classes: Classes, where: str) -> None:
    """Refuse a name that many answers have and no class: it is a class or an alias that was not told of.

    `unknown`: how often each text that names no class was answered, of `total` answers. Prose and rare texts are refusals.
    """
    names = {text: count for text, count in unknown.items() if 0 < len(text) <= LONGEST and len(text.split()) <= 4}
    many = [text for text, count in names.items() if count >= max(5, total / 200)]
    if not many:
        return
    shown = sorted(many, key=lambda text: -names[text])[:5]
    listed = ", ".join(f"{text!r} ({names[text]:,} times in {total:,} answers)" for text in shown)
    near = classes.nearest(shown[0])
    remedy = (
        f"if it is another name for a class, --alias {shown[0]!r}={near or classes.names[0]!r} (and so on for the others); "
    )
    remedy += f"if it is a class of its own, name all of them: --classes {','.join([*classes.names[:6], *shown])}"
    remedy += "; if it says that there is no answer, leave these answers empty"
    raise bad_input(
        "answers name a class that is not known", where, listed, f"one of {', '.join(classes.names[:20])}", remedy
    )
