"""CelebA and ImageNet: images that are decoded once, several at a time, into one array on the disk.

Chunk after chunk goes to the end of the array's file, and its digest into a record. After a kill the chunks whose digests
are right are kept, and none of their images is decoded again.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import warnings
import zipfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wdistill import store
from wdistill.datasets.arrays import damaged, lacking
from wdistill.datasets.originals import Original, is_published, look_for, read_original, unreadable
from wdistill.datasets.prepared import Rows
from wdistill.errors import FileError, UnfinishedError
from wdistill.progress import progress
from wdistill.signals import die_with_parent

if TYPE_CHECKING:
    from PIL.Image import Image

Fit = Callable[["Image", int], "Image"]
CHUNK = 256  # images; 38 MB at 224 × 224
LARGEST_PICTURE = 1 << 26  # bytes of one image file
ORDER = 2012  # the seed of ImageNet's order
SUFFIXES = (".jpeg", ".jpg", ".png")  # of ImageNet's images; one of the official .JPEG files is a PNG inside

CELEBA_IMAGES = Original(
    "img_align_celeba.zip", "00d2c5bc6d35e252742224ab0c1e8fcb", holds={"img_align_celeba": ""}
)  # unpacked, there is no checksum: the images are counted
CELEBA_ATTRIBUTES = Original("list_attr_celeba.txt", "75e246fa4810816ffd6ee81facbd244c")
CELEBA_PARTS = Original("list_eval_partition.txt", "d32c9cbf5e040fd4025c592c306e6668")


@dataclass(frozen=True, eq=False)
class Pictures:
    """The image files of one part in their order, with their labels."""

    place: Path  # the folder or the zip archive that they are in
    names: tuple[str, ...]
    labels: NDArray[np.int64]  # (n,)


@dataclass(frozen=True, eq=False)
class Listed:
    """A data set before its images are decoded."""

    classes: int
    train: Pictures
    test: Pictures
    fit: Fit  # makes an image square, of the size that is wanted
    official: bool  # as far as there are checksums
    source: str


def list_celeba(folder: Path, *, unofficial: bool) -> Listed:
    """CelebA's aligned images, labeled by the attribute Male (1 or 0); the official validation part is left out."""
    place = look_for(folder, CELEBA_IMAGES.name)
    official, images = True, "unpacked images, of which only the number can be checked"
    if place is not None:
        official, images = is_published(place, CELEBA_IMAGES, unofficial=unofficial), CELEBA_IMAGES.name
    tables = []
    for original in (CELEBA_ATTRIBUTES, CELEBA_PARTS):
        contents, published = read_original(folder, original, unofficial=unofficial)
        tables.append(_table(contents[original.name], original.name))
        official &= published
    place = place or look_for(folder, "img_align_celeba") or folder / "img_align_celeba"
    male, parts = _male(tables[0]), _parts(tables[1])
    there = _inside(place)
    lost = [name for name in parts if name not in there or name not in male]
    if lost:
        raise FileError(
            "images or their attributes are missing",
            where=str(place),
            found=f"{len(lost)} of {len(parts)}, first {lost[0]}",
            expected=f"every image that {CELEBA_PARTS.name} names, there and in {CELEBA_ATTRIBUTES.name}",
            remedy="unpack the archive again, or leave it packed",
        )

    def chosen(part: int) -> Pictures:
        names = [name for name, each in parts.items() if each == part]
        return Pictures(place, tuple(there[name] for name in names), np.array([male[name] for name in names], np.int64))

    return Listed(
        2, chosen(0), chosen(2), middle_square, official, f"{images}, {CELEBA_ATTRIBUTES.name}, {CELEBA_PARTS.name}"
    )


def _table(content: bytes, name: str) -> list[list[str]]:
    try:
        return [line.split() for line in content.decode("utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise damaged(name, str(error), "lines of text") from error


def _male(lines: list[list[str]]) -> dict[str, int]:
    """File name to 1 (Male) or 0, from a count, a line of attribute names and one line of −1 and 1 for every image."""
    name, columns = CELEBA_ATTRIBUTES.name, lines[1] if len(lines) > 1 else []
    if "Male" not in columns or lines[0] != [str(len(lines) - 2)]:
        found = f"{len(lines)} lines that begin with {lines[0] if lines else 'nothing'}"
        raise damaged(name, found, "the number of images, the names of the attributes, then a line an image")
    at, wanted = 1 + columns.index("Male"), 1 + len(columns)
    for number, words in enumerate(lines[2:], 3):
        if len(words) != wanted or words[at] not in ("-1", "1"):
            raise damaged(name, f"line {number}: {' '.join(words)[:60]!r}", f"a file name and {len(columns)} times −1 or 1")
    return {words[0]: int(words[at] == "1") for words in lines[2:]}


def _parts(lines: list[list[str]]) -> dict[str, int]:
    """File name to 0 (train), 1 (validation) or 2 (test)."""
    if not lines:
        raise damaged(CELEBA_PARTS.name, "no lines", "a line for every image")
    for number, words in enumerate(lines, 1):
        if len(words) != 2 or words[1] not in ("0", "1", "2"):
            raise damaged(CELEBA_PARTS.name, f"line {number}: {' '.join(words)[:60]!r}", "a file name and 0, 1 or 2")
    return {words[0]: int(words[1]) for words in lines}


def _inside(place: Path) -> dict[str, str]:
    """The files of a folder or a zip archive: the bare name, and the name in there."""
    try:
        if place.is_dir():
            return {entry.name: entry.name for entry in os.scandir(place)}
        with zipfile.ZipFile(place) as archive:
            return {PurePosixPath(name).name: name for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile) as error:
        raise unreadable(place, error) from error


def list_imagenet(folder: Path, *, unofficial: bool) -> Listed:
    """ImageNet's class folders train/n01440764/*.JPEG and val/n01440764/*.JPEG; classes are numbered by name.

    The train images are in an order drawn once and for all, since by name they would come class after class, and "the first
    N" would be few classes. There are no checksums: `official` is for the caller to say, by the numbers of images.
    """
    places = {part: look_for(folder, part) or folder / part for part in ("train", "val")}
    wnids = {part: _class_folders(place) for part, place in places.items()}
    if wnids["train"] != wnids["val"]:
        odd = sorted(set(wnids["train"]) ^ set(wnids["val"]))
        raise FileError(
            "train and val have other classes",
            where=str(folder),
            found=f"{len(wnids['train'])} and {len(wnids['val'])} class folders, {len(odd)} of them only in one: {odd[0]} …",
            expected="the same class folders in both",
            remedy="unpack every class into its folder in train, and move every image in val into the folder of its class",
        )
    train, test = (_in_class_folders(place, wnids["train"]) for place in places.values())
    order = np.random.default_rng(ORDER).permutation(len(train.names))
    train = Pictures(train.place, tuple(train.names[i] for i in order.tolist()), train.labels[order])
    source = f"class folders; no checksums exist, images are counted; train images in the order of seed {ORDER}"
    return Listed(len(wnids["train"]), train, test, short_side, True, source)


def _class_folders(place: Path) -> list[str]:
    try:
        found = sorted(entry.name for entry in os.scandir(place) if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise unreadable(place, error) from error
    if not found:
        raise FileError(
            "no class folders",
            where=str(place),
            found="no folders",
            expected="a folder for every class, such as n01440764, with its images",
            remedy="put every image into the folder of its class; for val, the development kit tells the classes",
        )
    return found


def _in_class_folders(place: Path, wnids: Sequence[str]) -> Pictures:
    names: list[str] = []
    labels: list[int] = []
    for label, wnid in enumerate(wnids):
        try:
            found = sorted(entry.name for entry in os.scandir(place / wnid) if entry.name.lower().endswith(SUFFIXES))
        except OSError as error:
            raise unreadable(place / wnid, error) from error
        names += [f"{wnid}/{each}" for each in found]
        labels += [label] * len(found)
    return Pictures(place, tuple(names), np.array(labels, np.int64))


def middle_square(image: Image, size: int) -> Image:
    """CelebA: the middle square (178 × 178 of 178 × 218), resized with Pillow's bilinear filter, which is antialiased."""
    from PIL.Image import Resampling

    edge = min(image.size)
    left, top = ((whole - edge) // 2 for whole in image.size)
    return image.crop((left, top, left + edge, top + edge)).resize((size, size), Resampling.BILINEAR)


def short_side(image: Image, size: int) -> Image:
    """ImageNet: the shorter side resized to size · 256/224, by the same filter, then the middle square of `size`."""
    from PIL.Image import Resampling

    short = round(size * 256 / 224)
    width, height = (short * whole // min(image.size) for whole in image.size)
    left, top = (width - size) // 2, (height - size) // 2
    return image.resize((width, height), Resampling.BILINEAR).crop((left, top, left + size, top + size))


def decode_part(
    folder: Path, part: str, pictures: Pictures, fit: Fit, size: int, workers: int
) -> tuple[Rows, dict[str, str]]:
    """Decode a part into `folder`: (n, 3, size, size) inputs, labels, the list of files; and their digests."""
    listing = "".join(f"{label}\t{name}\n" for name, label in zip(pictures.names, pictures.labels.tolist(), strict=True))
    buffer = io.BytesIO()
    np.save(buffer, pictures.labels, allow_pickle=False)
    small = {f"{part}.files.txt": listing.encode(), f"{part}.labels.npy": buffer.getvalue()}
    for name, content in small.items():
        store.write_bytes(folder / name, content)
    digests = {name: store.digest(content) for name, content in small.items()}
    array = f"{part}.inputs.npy"
    digests[array] = _decode_all(folder / array, pictures, fit, size, workers, digests[f"{part}.files.txt"])
    return Rows(np.load(folder / array, mmap_mode="r", allow_pickle=False), pictures.labels), digests


def _decode_all(target: Path, pictures: Pictures, fit: Fit, size: int, workers: int, files: str) -> str:
    """Bring the array to its end, from wherever an earlier run left it; its digest."""
    scratch, record, names = target.with_suffix(".part"), record_of(target), pictures.names
    plan = {"files": files, "size": size, "chunk": CHUNK}
    told = _told(record)
    if told.get("plan") != plan or not (scratch.exists() or target.exists()):
        told = {"plan": plan, "chunks": [], "whole": ""}
    if not told["whole"]:
        header, length = _header((len(names), 3, size, size)), 3 * size * size * CHUNK
        whole = hashlib.sha256(header)
        digests = _kept(scratch, header, told["chunks"], length, whole)
        store.check_space(target.parent, length * (len(names) // CHUNK + 1 - len(digests)), target.name)
        if not digests:
            store.write_at(scratch, 0, header)
        done = min(len(digests) * CHUNK, len(names))
        chunks = [names[first : first + CHUNK] for first in range(done, len(names), CHUNK)]
        with progress(f"decoding {target.name}", len(names), "images") as tick:
            tick(done)
            for images in _in_order(partial(decode, pictures.place, fit, size), chunks, workers):
                content = images.data.cast("B")
                store.write_at(scratch, len(header) + len(digests) * length, content)
                whole.update(content)
                digests.append(store.digest(content))
                store.write_bytes(record, json.dumps({"plan": plan, "chunks": digests, "whole": ""}).encode())
                tick(len(images))
        told = {"plan": plan, "chunks": digests, "whole": whole.hexdigest()}
        store.write_bytes(record, json.dumps(told).encode())
    if scratch.exists():
        store.rename(scratch, target)
    return str(told["whole"])


def record_of(target: Path) -> Path:
    """Where it is kept how far an array has come."""
    return target.with_suffix(".progress.json")


def _told(record: Path) -> dict[str, Any]:
    try:
        found = json.loads(record.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _header(shape: tuple[int, ...]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def _kept(scratch: Path, header: bytes, digests: Sequence[str], length: int, whole: Any) -> list[str]:
    """The digests of those chunks of an earlier run that are as they were written; they go into the digest of the whole."""
    kept: list[str] = []
    if not digests or not scratch.exists():
        return kept
    with scratch.open("rb") as file, progress(f"checking {scratch.name}", len(digests), "chunks") as tick:
        intact = file.read(len(header)) == header
        for expected in digests:
            content = file.read(length)
            intact &= store.digest(content) == expected
            if not intact:
                break
            whole.update(content)
            kept.append(expected)
            tick(1)
    return kept


def _in_order(
    work: Callable[[Sequence[str]], NDArray[np.uint8]], chunks: Iterable[Sequence[str]], workers: int
) -> Iterator[NDArray[np.uint8]]:
    """The chunks decoded, in their order; no more than two for every worker are under way."""
    if workers == 1:
        yield from map(work, chunks)
        return
    with _crew(workers) as pool:
        waiting: deque[Any] = deque()
        for chunk in chunks:
            waiting.append(pool.submit(work, chunk))
            if len(waiting) == 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


@contextmanager
def _crew(workers: int) -> Iterator[Any]:
    """A pool of processes that die with this one, and at once when the block ends badly."""
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=_begin) as pool:
        try:
            yield pool
        except BaseException as error:
            processes = list((getattr(pool, "_processes", None) or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()
            if not isinstance(error, BrokenProcessPool):
                raise
            raise UnfinishedError(
                "a worker process died",
                where="workers",
                found="it was killed, or ran out of memory, or could not begin",
                expected="processes that live until their work is done",
                remedy="run again to go on; with fewer workers if memory was short",
            ) from None


def _begin() -> None:
    """A worker's first act. Ctrl-C reaches the parent, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()


def decode(place: Path, fit: Fit, size: int, names: Sequence[str]) -> NDArray[np.uint8]:
    """(n, 3, size, size) images of the files in a folder or zip archive."""
    images = np.empty((len(names), 3, size, size), np.uint8)
    for row, name in enumerate(names):
        images[row] = decode_one(place, fit, size, name)
    return images


def decode_one(place: Path, fit: Fit, size: int, name: str) -> NDArray[np.uint8]:
    """(3, size, size) image of one file, whatever its colours."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise lacking("pillow", str(place)) from None
    where = f"{place}, {name}" if place.is_file() else str(place / name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(_bytes(place, name)), formats=("JPEG", "PNG")) as image:
                return np.asarray(fit(image.convert("RGB"), size)).transpose(2, 0, 1)
    except Exception as error:  # Pillow has many ways to say that a file is broken
        raise FileError(
            "the image cannot be decoded",
            where=where,
            found=f"{type(error).__name__}: {error}",
            expected="a whole JPEG or PNG image",
            remedy="get this file again; images that are done are kept",
        ) from error


def _bytes(place: Path, name: str) -> bytes:
    if place.is_dir():
        with (place / name).open("rb") as file:
            content = file.read(LARGEST_PICTURE + 1)
    else:
        archive = _archive(place, place.stat().st_mtime_ns)
        with archive.open(name) as member:
            content = member.read(LARGEST_PICTURE + 1)
    if len(content) > LARGEST_PICTURE:
        raise ValueError(f"more than {LARGEST_PICTURE:,} bytes")
    return content


@lru_cache(maxsize=1)
def _archive(path: Path, changed: int) -> zipfile.ZipFile:
    """A zip archive that stays open: its list of files takes a second to read."""
    return zipfile.ZipFile(path)
