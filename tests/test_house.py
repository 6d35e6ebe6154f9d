"""The figures of the architecture, on trees small enough to count by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import house
from tests.house import Row, Source


def tree(root: Path, **files: str) -> list[Source]:
    """The modules of a package `wdistill`: names with __ for a folder's /, and what is written in them."""
    for name, text in {"__init__": "", **files}.items():
        path = root / "wdistill" / (name if name == "__init__" else name.replace("__", "/", 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".py").write_text(text)
    return house.read(root, "wdistill")


def test_a_chain_of_three_modules_has_three_layers(tmp_path: Path) -> None:
    graph = house.import_graph(tree(tmp_path, a="", b="from wdistill import a", c="def f():\n    import wdistill.b\n"))
    assert graph == {"wdistill.a": set(), "wdistill.b": {"wdistill.a"}, "wdistill.c": {"wdistill.b"}}
    assert house.layers(graph) == 3 and house.cycles(graph) == []


def test_a_cycle_is_found_and_counts_as_one_layer() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}
    assert house.cycles(graph) == [{"b", "c"}]
    assert house.layers(graph) == 3


def test_a_relative_import_is_an_import(tmp_path: Path) -> None:
    graph = house.import_graph(tree(tmp_path, core__errors="", core__checks="from . import errors"))
    assert graph["wdistill.core.checks"] == {"wdistill.core.errors"}


def test_a_package_that_imports_its_own_modules_is_a_cycle_once_they_import_each_other(tmp_path: Path) -> None:
    files = {"core____init__": "from wdistill.core.b import f", "core__a": "", "core__b": "f = 1"}
    assert house.package_cycles(tree(tmp_path / "one", **files)) == []
    files["core__b"] = "from wdistill.core.a import f"
    assert house.package_cycles(tree(tmp_path / "other", **files)) == [{"wdistill.core", "wdistill.core.b"}]
    files["core____init__"] = "def f():\n    from wdistill.core.b import f\n    return f()"
    assert house.package_cycles(tree(tmp_path / "later", **files)) == []


def test_imports_against_the_order_are_found(tmp_path: Path) -> None:
    files = {
        "core__errors": "",
        "weights__rules": "from wdistill.core import errors",
        "tables__rows": "from wdistill.runs.arms import Arm",
        "runs__arms": "from wdistill.weights.rules import Rule\nfrom wdistill.report.page import page",
        "report__page": "from wdistill.tables.rows import rows",
        "training__loop": "from wdistill.report.page import page",
        "datasets__catalog": "from wdistill.core.errors import E\nfrom wdistill.training.loop import train",
        "cli__data": "from wdistill.datasets.catalog import prepare",
    }
    graph = house.import_graph(tree(tmp_path, **files))
    assert set(house.against_order(graph)) == {
        "wdistill.tables.rows → wdistill.runs.arms",
        "wdistill.runs.arms → wdistill.report.page",
        "wdistill.datasets.catalog → wdistill.training.loop",
    }
    assert house.cycles(house.room_graph(graph)) == [{"tables", "runs", "report"}]


def test_every_room_may_import_the_first_and_none_the_last() -> None:
    assert all(house.may_import(room, "core") for room in house.STEP)
    assert [room for room in house.STEP if house.may_import(room, "cli")] == ["cli"]


def test_every_module_of_a_room_belongs_to_it() -> None:
    assert house.room_of("wdistill.tables.formats.parquet") == "tables" and house.room_of("wdistill.__main__") == "cli"
    assert house.room_of("wdistill.elsewhere.claims") is None


def test_layers_are_the_rooms_that_are_there(tmp_path: Path) -> None:
    tree(tmp_path, core__errors="", weights__rules="", elsewhere__a="")
    assert house.rooms_there(tmp_path) == 2


def test_names_with_two_homes_are_found(tmp_path: Path) -> None:
    sources = tree(tmp_path, a="class Work: ...\nclass _Run: ...", b="class Work: ...\nclass Run: ...\nclass Arm: ...")
    assert house.two_homes(sources) == ("Work: wdistill.a, wdistill.b",)


def test_the_same_basename_counts_by_pairs_of_rooms(tmp_path: Path) -> None:
    sources = tree(tmp_path, a__files="", b__files="", c__files="", c__formats="")
    assert len(house.same_basename(sources)) == 3
    (tmp_path / "wdistill" / "c" / "inner").mkdir()
    (tmp_path / "wdistill" / "c" / "inner" / "formats.py").touch()
    assert len(house.same_basename(house.read(tmp_path, "wdistill"))) == 3  # the same room


def test_modules_ending_in_ing_are_found_but_no_packages(tmp_path: Path) -> None:
    assert house.named_ing(tree(tmp_path, weighing="", rules="", training____init__="")) == ("wdistill.weighing",)


def test_the_largest_class_is_found(tmp_path: Path) -> None:
    many = "class Many:\n    def a(self): ...\n    @property\n    def b(self): ...\n"
    sources = tree(tmp_path, a=many, b="class Long:\n    x = 1\n\n\n\n    y = 2\n")
    assert house.largest_class(sources, house.class_lines) == (6, "wdistill.b.Long")
    assert house.largest_class(sources, house.class_methods) == (2, "wdistill.a.Many")


def test_checks_of_a_rules_kind_are_counted_outside_of_its_home(tmp_path: Path) -> None:
    own = "class Rule: ...\nisinstance(x, Rule)"
    other = "isinstance(x, Rule | int)\nisinstance(x, str)\nmatch x:\n    case MethodArm(): ..."
    assert house.kind_checks(tree(tmp_path, rules=own, arms=other)) == ("wdistill.arms:1", "wdistill.arms:4")


def test_a_context_of_another_part_is_none(tmp_path: Path) -> None:
    files = {"methods__context": "class Context: ...", "theory": "class Context: ...\nContext()"}
    files["tables__weigh"] = "from wdistill.methods import context\ncontext.Context()"
    assert house.context_builds(tree(tmp_path, **files)) == ("wdistill.tables.weigh:2",)


def test_a_new_rule_needs_the_files_that_name_the_least_named_rule(tmp_path: Path) -> None:
    rules = "@rule\ndef plain(evidence): ...\n@rule\ndef special(evidence): ..."
    more = {"options": 'RULES = {"plain": 1, "special": 2}', "page": 'if name == "special": ...', "texts": '"plain words"'}
    assert house.rule_files(tree(tmp_path, rules=rules, **more)) == ("wdistill.options", "wdistill.rules")


def test_what_cannot_be_found_cannot_be_measured(tmp_path: Path) -> None:
    sources = tree(tmp_path, a="x = 1")
    assert house.kind_checks(sources) is None and house.context_builds(sources) is None and house.rule_files(sources) is None


TEN = '''"""A module."""

class OurError(ValueError): ...  # code 1

def check(x):  # code 2
    """Refuse."""
    if x:  # code 3
        raise OurError(  # code 4, counted
            "no"  # code 5, counted
        )  # code 6, counted
    # nothing
    raise refused(x)  # code 7

def refused(x):  # code 8
    return OurError(x)  # code 9, counted
    raise ValueError("x")  # code 10
'''


def test_the_share_of_errors_by_hand(tmp_path: Path) -> None:
    sources = tree(tmp_path, a=TEN)
    assert house.error_share(sources) == pytest.approx(40.0)
    assert house.raise_share(sources) == pytest.approx(50.0)


def test_the_first_code_is_python() -> None:
    assert house.first_code("# Title\n```bash\nmake\n```\n```python\n") == 5 and house.first_code("text") is None


def test_a_figure_is_reached_up_to_what_is_wanted() -> None:
    found = [Row("a", 3, 3).reached, Row("a", 4, 3).reached, Row("a", None, 3).reached, Row("a", 4).reached]
    assert found == [True, False, False, None]


def test_the_table_shows_places_where_they_are_asked_for() -> None:
    rows = [house.counted("things", ["a.py", "b.py"], 1), Row("share", 12.34, 20, unit=" %")]
    assert "a.py" not in house.shown(rows) and "a.py" in house.shown(rows, places=True)
    assert "12.3 %" in house.shown(rows) and "≤ 20.0 %  yes" in house.shown(rows)
