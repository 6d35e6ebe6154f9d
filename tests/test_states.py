"""Fitted rules as files: what is read back weighs to the same bits, and damage is seen or does not matter."""

import io
import pickle
import time

import numpy as np
import pytest

from tests.strategies import problem
from wdistill import (
    ConfigError,
    Evidence,
    FileError,
    Scores,
    StorageError,
    WdistillError,
    compose,
    debiased,
    entropy,
    fidelity,
    load,
    margin,
    oracle,
    read_run,
    save,
    threshold,
    unweighted,
    weigh,
)
from wdistill.weights.saved import from_bytes, to_bytes

pytestmark = pytest.mark.filterwarnings("ignore::wdistill.WdistillWarning")

GIVEN = problem(np.random.default_rng(61), 40, 30, 3)
TRUTH = np.random.default_rng(62).integers(0, 3, 30)
EVIDENCE = Evidence(*GIVEN.arrays, labeled_teacher=GIVEN.validation_teacher, truth=TRUTH)

RULES = {
    "debiased": debiased,
    "hard ratio": debiased.using(targets="hard", estimate="ratio", neighbors=7),
    "conditional entropy": debiased.using(estimate="conditional", confidence=entropy),
    "fidelity": fidelity,
    "threshold": threshold.using(threshold=0.4),
    "low entropy": threshold.using(threshold=0.4, confidence=entropy),
    "oracle": oracle,
    "unweighted": unweighted,
    "product": compose(debiased, fidelity, oracle),
    "product of products": compose(compose(debiased, debiased.using(targets="hard")), fidelity),
}


def weights_of(fitted):
    return weigh(fitted, GIVEN.teacher, GIVEN.student, TRUTH).weights


@pytest.mark.parametrize("name", RULES)
def test_rule_read_back_weighs_to_the_same_bits(tmp_path, name):
    fitted = RULES[name].fit(EVIDENCE)
    save(fitted, tmp_path / "rule.npz")
    again = load(tmp_path / "rule.npz")
    assert again.name == fitted.name
    one, other = weigh(fitted, GIVEN.teacher, GIVEN.student, TRUTH), weigh(again, GIVEN.teacher, GIVEN.student, TRUTH)
    assert one.weights.tobytes() == other.weights.tobytes() == RULES[name](EVIDENCE).tobytes()
    assert (one.clipped, one.tied, one.floored, one.largest_distortion) == (
        other.clipped,
        other.tied,
        other.floored,
        other.largest_distortion,
    )
    assert list(one.factors) == list(other.factors)


def test_rule_fitted_on_scores_is_read_back(tmp_path):
    rng = np.random.default_rng(63)
    fitted = debiased.fit(EVIDENCE, confidence=Scores(rng.random(40), rng.random(40)))
    save(fitted, str(tmp_path / "rule"))
    asked = rng.random((2, 9))
    assert weigh(load(str(tmp_path / "rule")), *asked).weights.tobytes() == weigh(fitted, *asked).weights.tobytes()


@pytest.mark.parametrize("name", RULES)
def test_equal_rules_give_equal_bytes_at_any_time(monkeypatch, name):
    before, now = to_bytes(RULES[name].fit(EVIDENCE)), time.time()
    monkeypatch.setattr(time, "time", lambda: now + 1e6)
    assert to_bytes(RULES[name].fit(EVIDENCE)) == before == to_bytes(from_bytes(before, "file"))


def test_function_of_ones_own_cannot_be_saved(tmp_path):
    fitted = debiased.fit(EVIDENCE, confidence=lambda rows: margin(rows))
    with pytest.raises(ConfigError, match="Scores") as caught:
        save(fitted, tmp_path / "rule.npz")
    assert caught.value.where and caught.value.found and caught.value.expected and caught.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_rule_of_ones_own_cannot_be_saved(tmp_path):
    class Mine:
        name = "mine"

        def weigh_rows(self, rows): ...

    with pytest.raises(ConfigError, match="cannot be saved"):
        save(Mine(), tmp_path / "rule.npz")


def test_folder_must_exist(tmp_path):
    with pytest.raises(StorageError, match="folder"):
        save(unweighted.fit(EVIDENCE), tmp_path / "missing" / "rule.npz")


def test_saving_replaces_and_leaves_nothing_else(tmp_path):
    for rule in (unweighted, oracle):
        save(rule.fit(EVIDENCE), tmp_path / "rule.npz")
    assert load(tmp_path / "rule.npz").name == "oracle"
    assert [path.name for path in tmp_path.iterdir()] == ["rule.npz"]


@pytest.mark.parametrize("name", ["missing", "folder"])
def test_what_cannot_be_read_is_named(tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(FileError, match=name) as caught:
        load(tmp_path / name)
    assert caught.value.found and caught.value.expected and caught.value.remedy


def npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def text(content):
    return np.frombuffer(content, np.uint8)


class Trap:
    """Unpickling it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"not a zip", id="text"),
        pytest.param(npz(points=np.ones(3)), id="other npz"),
        pytest.param(npz(**{"rule.json": text(b"{")}), id="broken json"),
        pytest.param(npz(**{"rule.json": text(b"[]")}), id="json list"),
        pytest.param(npz(**{"rule.json": text(b"\xff\xfe\xff")}), id="not utf-8"),
        pytest.param(npz(**{"rule.json": text(b'{"wdistill": 1}')}), id="no rule"),
        pytest.param(npz(**{"rule.json": text(b'{"wdistill": 1, "rule": {"name": "magic"}}')}), id="unknown rule"),
        pytest.param(npz(**{"rule.json": text(b'{"wdistill": 99, "rule": {"name": "oracle"}}')}), id="other version"),
        pytest.param(npz(**{"rule.json": text(b'{"wdistill": 1, "rule": {"name": "debiased"}}')}), id="no arrays"),
    ],
)
def test_what_is_not_a_rule_is_refused(content):
    with pytest.raises(FileError) as caught:
        from_bytes(content, "some.npz")
    error = caught.value
    assert error.where == "some.npz" and error.found and error.expected and error.remedy


@pytest.mark.parametrize("member", ["rule.json", "rule.points"])
def test_pickles_are_refused_and_not_run(tmp_path, member):
    marker = tmp_path / "marker"
    with np.load(io.BytesIO(to_bytes(debiased.fit(EVIDENCE)))) as file:
        arrays = dict(file)
    arrays[member] = np.array([Trap(marker)], dtype=object)
    with pytest.raises(FileError):
        from_bytes(npz(**arrays), "trap.npz")
    with pytest.raises(FileError):
        from_bytes(pickle.dumps(Trap(marker)), "trap.pkl")
    assert not marker.exists()


def outcome(content, wanted):
    """None if the damaged file is refused or harmless, otherwise what went wrong."""
    try:
        found = weights_of(from_bytes(content, "damaged.npz"))
    except FileError:
        return None
    except WdistillError as error:
        return f"late: {error}"
    except Exception as error:
        return f"undeclared {type(error).__name__}: {error}"
    return None if found.tobytes() == wanted else "silently other weights"


@pytest.mark.parametrize("name", ["debiased", "product"])
def test_truncated_files_are_refused(name):
    fitted = RULES[name].fit(EVIDENCE)
    content, wanted = to_bytes(fitted), weights_of(fitted).tobytes()
    faults = {cut: outcome(content[:cut], wanted) for cut in range(0, len(content), 37)}
    assert {cut: fault for cut, fault in faults.items() if fault} == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["debiased", "fidelity"])
def test_flipped_bits_are_seen_or_harmless(name):
    fitted = RULES[name].fit(EVIDENCE)
    content, wanted = to_bytes(fitted), weights_of(fitted).tobytes()
    rng, faults = np.random.default_rng(64), {}
    for _ in range(1500):
        place, bit = int(rng.integers(len(content))), int(rng.integers(8))
        damaged = bytearray(content)
        damaged[place] ^= 1 << bit
        fault = outcome(bytes(damaged), wanted)
        if fault:
            faults[place, bit] = fault
    assert faults == {}


@pytest.mark.parametrize("path", [None, 3, b"x", ["x"]])
def test_what_is_no_path_is_an_error_of_ours(path):
    fitted = unweighted.fit(EVIDENCE)
    for call in (lambda: load(path), lambda: save(fitted, path), lambda: read_run(path)):
        with pytest.raises(ConfigError, match="not a path") as caught:
            call()
        assert caught.value.where and type(path).__name__ in caught.value.found and "pathlib.Path" in caught.value.expected
