"""The recipe: where its settings come from, what is refused, and that it survives being stored."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wdistill.core.errors import ConfigError, FileError, WdistillWarning
from wdistill.core.settings import add_flags, flags_given, settings_of, to_json
from wdistill.runs.recipe import Recipe, changes, check_recipe, from_json, read_recipe

SETTINGS = settings_of(Recipe)
NAMES = list(SETTINGS)
SAFE = {"workers", "checkpoint_seconds"}  # may differ when a run resumes: they change no bit of its result


def write(folder: Path, text: str, name: str = "recipe.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def values(name: str) -> st.SearchStrategy[Any]:
    """Values that a field may have, drawn from its type and limits."""
    each = SETTINGS[name]
    if each.type is tuple:
        pairs = ("layers.2=layers.5", "stem=body.0.conv")
        words = each.choices or (pairs if name == "vid" else ("debiased", "unweighted", "debiased,fidelity", "shuffled"))
        return st.lists(st.sampled_from(words), min_size=name == "rule", unique=True).map(tuple)
    if name == "targets_from":
        return st.sampled_from(("average", "posterior", "teacher", "retrained-recalibrated"))
    if name == "metric":
        return st.sampled_from(("accuracy", "macro-f1", "f1:1", "cost:[[0, 1], [2, 0]]"))
    if each.choices:
        return st.sampled_from(each.choices)
    if each.type is bool:
        return st.booleans()
    if each.type is int:
        found = st.integers(int(each.least or 0), 2**40)
    else:
        low, high = each.least or each.above or 0, each.below or 1e6
        found = st.floats(low, high, exclude_min=True, exclude_max=each.below is not None)
    return st.none() | found if each.optional else found


RECIPES = st.builds(Recipe, **{name: values(name) for name in NAMES})


@given(RECIPES)
def test_a_recipe_survives_json(recipe: Recipe) -> None:
    stored = json.loads(json.dumps(to_json(recipe), allow_nan=False))
    assert from_json(stored) == recipe
    assert changes(stored, to_json(recipe)) == []


@given(RECIPES, RECIPES)
def test_changes_name_exactly_the_settings_that_matter(old: Recipe, new: Recipe) -> None:
    named = [line.split(":")[0] for line in changes(to_json(old), to_json(new))]
    assert named == [name for name in NAMES if getattr(old, name) != getattr(new, name) and name not in SAFE]


def test_changes_read_well() -> None:
    old = Recipe()
    new = replace(old, epochs=100, rule=("debiased", "unweighted"), refresh=1, workers=2, augmentation=("flip",))
    assert changes(to_json(old), to_json(new)) == [
        "epochs: 200 → 100",
        "augmentation: none → flip",
        "rule: debiased → debiased unweighted",
        "refresh: none → 1",
    ]
    assert changes({}, {"depth": 3}) == ["depth: absent → 3"]


@pytest.mark.parametrize("name", NAMES)
def test_a_setting_that_an_older_recipe_lacks_has_its_default(name: str) -> None:
    now = to_json(Recipe())
    older = {each: value for each, value in now.items() if each != name}
    assert changes(older, now) == changes(now, older) == []
    assert changes({}, now) == changes(now, {}) == []
    other = {**now, name: "other"}
    lines = changes(older, other)
    assert lines == changes(now, other) and len(lines) == (name not in SAFE)


def test_an_older_recipe_is_read_with_defaults() -> None:
    now = replace(Recipe(), weight_decay=1e-4)
    older = {name: value for name, value in to_json(now).items() if name not in ("decayed", "vid", "vid_scale")}
    assert from_json(older) == now
    assert changes(older, to_json(replace(now, decayed="kernels"))) == ["decayed: all → kernels"]
    assert changes(older, to_json(replace(now, vid=("a=b",)))) == ["vid: none → a=b"]


def flags(*words: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    add_flags(parser, Recipe)
    return flags_given(parser.parse_args(words), Recipe)


def test_every_field_has_a_flag_with_its_meaning() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, Recipe)
    found = {action.dest: action for action in parser._actions}
    for each in SETTINGS.values():
        assert found[each.name].option_strings[0] == "--" + each.name.replace("_", "-")
        assert each.help in (found[each.name].help or "") and each.help
        assert found[each.name].default is None
    assert "shuffled" in parser.format_help()


def test_flags_become_settings() -> None:
    given = flags(
        *["--rule", "debiased", "--rule"], "unweighted, fidelity", *["--augmentation", "flip,translate", "--rate", "1"]
    )
    found = read_recipe([], given)
    assert found == Recipe(rule=("debiased", "unweighted,fidelity"), augmentation=("flip", "translate"), rate=1.0)
    assert read_recipe([], flags("--temperature-squared")).temperature_squared
    pairs = read_recipe([], flags("--vid", "layers.2=layers.5, stem=body.0", "--vid-scale", "2"))
    assert pairs == Recipe(vid=("layers.2=layers.5", "stem=body.0"), vid_scale=2.0)
    assert flags() == {} and read_recipe([], {"epochs": None}) == Recipe()


def test_later_files_win_and_flags_win_over_files(tmp_path: Path) -> None:
    first = write(
        tmp_path,
        "epochs = 1\nrate = 2\nbatch_size = 3\ntemperature_squared = true\naugmentation = ['flip']\nvid = ['a=b']",
        "a",
    )
    second = write(tmp_path, "rate = 0.5\nbatch_size = 4\n", "b")
    given = flags("--batch-size", "5", "--no-temperature-squared", "--augmentation", "none", "--vid", "none")
    assert read_recipe([first, second], given) == Recipe(epochs=1, rate=0.5, batch_size=5)
    assert read_recipe([second, first], {}).rate == 2.0 and read_recipe([first], {}).vid == ("a=b",)


@pytest.mark.parametrize(
    ("typo", "meant"), [("epoch", "epochs"), ("batch-size", "batch_size"), ("tempreature", "temperature")]
)
def test_an_unknown_key_names_its_file_and_the_nearest_key(tmp_path: Path, typo: str, meant: str) -> None:
    path = write(tmp_path, f"{typo} = 3")
    with pytest.raises(ConfigError, match=f"did you mean {meant}") as caught:
        read_recipe([path], {})
    assert str(path) in str(caught.value) and repr(typo) in str(caught.value)


def test_bad_files_are_named_with_the_line(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="line 2"):
        read_recipe([write(tmp_path, "epochs = 1\nrate = = 2\n")], {})
    with pytest.raises(FileError, match="No such file"):
        read_recipe([tmp_path / "missing.toml"], {})
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(FileError, match="not a TOML file"):
        read_recipe([tmp_path / "binary.toml"], {})
    with pytest.raises(FileError, match="directory"):
        read_recipe([tmp_path], {})


BAD = [
    ("epochs", 0),
    ("epochs", 1.0),
    ("epochs", True),
    ("epochs", "10"),
    ("teacher_epochs", -1),
    ("batch_size", 0),
    ("rate", 0.0),
    ("rate", -0.1),
    ("rate", float("nan")),
    ("rate", float("inf")),
    ("rate", 10**400),
    ("rate", False),
    ("momentum", 1.0),
    ("weight_decay", -1e-4),
    ("temperature", 0),
    ("temperature_squared", 1),
    ("neighbors", 0),
    ("neighbors", 2.5),
    ("threshold", float("nan")),
    ("refresh", 0),
    ("classes", 1),
    ("seed", -1),
    ("seed", 2**63),
    ("threads", 0),
    ("workers", 0),
    ("checkpoint_seconds", -1),
    ("optimizer", "adm"),
    ("optimizer", 3),
    ("targets", None),
    ("device", "tpu"),
    ("augmentation", ["flip", "rotate"]),
    ("augmentation", ["flip", "flip"]),
    ("augmentation", "flip"),
    ("vid", "a=b"),
    ("vid", [1]),
    ("vid", ["a"]),
    ("vid", ["a="]),
    ("vid", ["=b"]),
    ("vid", ["a=b=c"]),
    ("vid", ["a=b,c=d"]),
    ("vid", ["a = b"]),
    ("vid", ["a=b", "a=b"]),
    ("vid_scale", 0),
    ("vid_scale", float("inf")),
    ("rule", []),
    ("rule", "debiased"),
    ("rule", [1]),
    ("rule", [""]),
    ("rule", ["debiased, fidelity"]),
    ("rule", ["debiased,"]),
    ("rule", ["debiased,debiased"]),
    ("rule", ["debiased", "debiased"]),
    ("rule", ["../debiased"]),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=lambda each: str(each)[:30])
def test_bad_values_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        check_recipe(replace(Recipe(), **{name: value}))
    with pytest.raises(ConfigError, match=name):
        from_json({name: value})
    if value is not None:
        with pytest.raises(ConfigError, match="--" + name.replace("_", "-")):
            read_recipe([], {name: value})


def test_nan_in_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="finite"):
        read_recipe([write(tmp_path, "rate = nan")], {})


@pytest.mark.parametrize(
    "settings",
    [
        {"threshold": 0.5},
        {"rule": ("threshold",)},
        {"rule": ("unweighted",), "neighbors": 3},
        {"rule": ("unweighted",), "estimate": "ratio"},
        {"rule": ("fidelity",), "confidence": "entropy"},
        {"momentum": 0.5},
        {"vid_scale": 0.5},
        {"decayed": "kernels"},
        {"sharded": True, "vid": ("layers.0=layers.0",)},
        {"sharded": True, "precision": "float16"},
        {"sharded": True, "workers": 2},
    ],
)
def test_conflicts_name_both_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        check_recipe(Recipe(**settings))
    assert " with " in caught.value.found and all(name in caught.value.found for name in settings)
    with pytest.raises(ConfigError):
        read_recipe([], settings)


def test_what_belongs_together_is_accepted() -> None:
    check_recipe(Recipe())
    check_recipe(Recipe(rule=("debiased,threshold", "unweighted"), threshold=0.5, confidence="entropy", neighbors=3))
    check_recipe(Recipe(rule=("shuffled",), estimate="conditional", optimizer="sgd", momentum=0.5))
    check_recipe(Recipe(rule=("shuffled-threshold",), threshold=0.5))
    check_recipe(Recipe(refresh=1, validation_in_training="half"))
    check_recipe(Recipe(vid=("a=b", "a=c", "b=c"), vid_scale=0.5))
    check_recipe(Recipe(decayed="kernels", weight_decay=1e-4))


def test_rules_of_other_arms_may_look_at_a_setting_but_need_none_for_themselves() -> None:
    plain = Recipe(rule=("unweighted",), confidence="entropy")
    check_recipe(plain, beside=["debiased"])
    check_recipe(plain, beside=["threshold"])
    with pytest.raises(ConfigError, match="confidence"):
        check_recipe(plain, beside=["fidelity"])
    with pytest.raises(ConfigError, match="the rule threshold needs it"):
        check_recipe(Recipe(rule=("threshold",)), beside=["debiased"])


def test_a_memorised_validation_set_and_a_refresh_that_never_comes_are_warned_of() -> None:
    with pytest.warns(WdistillWarning, match="memorised"):
        check_recipe(Recipe(refresh=1, validation_in_training="yes"))
    with pytest.warns(WdistillWarning, match="only once"):
        check_recipe(Recipe(refresh=10, epochs=10))


def test_a_recipe_cannot_change() -> None:
    with pytest.raises(AttributeError):
        Recipe().epochs = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    "content", [b"epochs = " + b"[" * 20_000, b"#" * (2 << 20), b"\xff\xfe", b"epochs = 1" + b"0" * 5000]
)
def test_a_file_of_settings_that_is_deep_or_long_is_an_error_of_ours(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "recipe.toml").write_bytes(content)
    with pytest.raises(FileError, match="not a TOML file"):
        read_recipe([tmp_path / "recipe.toml"], {})
