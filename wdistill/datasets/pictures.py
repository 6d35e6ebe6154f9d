"""CelebA and ImageNet: image files that are decoded once, by several processes, into one array on the disk.

Chunk after chunk is appended to the array's file, and its digest to a progress file. After a kill, chunks whose digests are
right are not decoded again.
"""

from __future__ import annotations

import hashlib
import io
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

from wdistill.core import npy, sealed, store
from wdistill.core.errors import unreadable, worker_died
from wdistill.core.processes import process_pool
from wdistill.core.progress import progress
from wdistill.core.signals import die_with_parent
from wdistill.datasets.arrays import damaged, not_installed
from wdistill.datasets.originals import Original, cannot_read, find_file, is_published, read_original
from wdistill.datasets.prepared import AGAIN, ImageSplit, npy_bytes, write_digested

if TYPE_CHECKING:
    from PIL.Image import Image

Fit = Callable[["Image", int], "Image"]
CHUNK = 256  # images; 38 MB at 224 × 224
MAX_IMAGE_BYTES = 1 << 26  # of one image file
ORDER = 2012  # the seed of ImageNet's order
SUFFIXES = (".jpeg", ".jpg", ".png")  # of ImageNet's images; one of the official .JPEG files is a PNG inside

CELEBA_IMAGES = Original(  # unpacked, there is no checksum: the images are counted
    "img_align_celeba.zip", "00d2c5bc6d35e252742224ab0c1e8fcb", packed={"img_align_celeba": ""}
)
CELEBA_ATTRIBUTES = Original("list_attr_celeba.txt", "75e246fa4810816ffd6ee81facbd244c")
CELEBA_PARTS = Original("list_eval_partition.txt", "d32c9cbf5e040fd4025c592c306e6668")


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """The image files of one part in their order, with their labels."""

    location: Path  # their folder or zip archive
    names: tuple[str, ...]
    labels: NDArray[np.int64]  # (n,)


@dataclass(frozen=True, eq=False)
class ImageListing:
    """A data set before its images are decoded."""

    classes: int
    train: ImageFiles
    test: ImageFiles
    fit: Fit  # crops and resizes an image to a square
    official: bool  # as far as there are checksums
    source: str


def list_celeba(folder: Path, *, unofficial: bool) -> ImageListing:
    """CelebA's aligned images, labeled by the attribute Male (1 or 0); the official validation part is left out."""
    archive = find_file(folder, CELEBA_IMAGES.name)
    official, images = True, "unpacked images, of which only the number can be checked"
    if archive is not None:
        official, images = is_published(archive, CELEBA_IMAGES, unofficial=unofficial), CELEBA_IMAGES.name
    tables = []
    for original in (CELEBA_ATTRIBUTES, CELEBA_PARTS):
        contents, published = read_original(folder, original, unofficial=unofficial)
        tables.append(_read_lines(contents[original.name], original.name))
        official &= published
    location = archive or find_file(folder, "img_align_celeba") or folder / "img_align_celeba"
    male, parts = _read_male(tables[0]), _read_parts(tables[1])
    paths = _list_files(location)
    absent = [name for name in parts if name not in paths or name not in male]
    if absent:
        what, found = "images or their attributes are missing", f"{len(absent)} of {len(parts)}, first {absent[0]}"
        expected = f"every image of {CELEBA_PARTS.name}, also in {CELEBA_ATTRIBUTES.name}"
        raise unreadable(what, location, found, expected, "unpack the archive again, or leave it packed")

    def files_of(part: int) -> ImageFiles:
        names = [name for name, number in parts.items() if number == part]
        labels = np.array([male[name] for name in names], np.int64)
        return ImageFiles(location, tuple(paths[name] for name in names), labels)

    source = f"{images}, {CELEBA_ATTRIBUTES.name}, {CELEBA_PARTS.name}"
    return ImageListing(2, files_of(0), files_of(2), middle_square, official, source)


def _read_lines(content: bytes, name: str) -> list[list[str]]:
    try:
        return [line.split() for line in content.decode("utf-8").splitlines()]
    except UnicodeDecodeError as error:
        raise damaged(name, str(error), "lines of text") from error


def _read_male(lines: list[list[str]]) -> dict[str, int]:
    """File name to 1 (Male) or 0, from a count, a line of attribute names and one line of −1 and 1 for every image."""
    name, columns = CELEBA_ATTRIBUTES.name, lines[1] if len(lines) > 1 else []
    if "Male" not in columns or lines[0] != [str(len(lines) - 2)]:
        found = f"{len(lines)} lines that start with {lines[0] if lines else 'nothing'}"
        raise damaged(name, found, "the number of images, the names of the attributes, then a line for every image")
    at, length = 1 + columns.index("Male"), 1 + len(columns)
    for number, words in enumerate(lines[2:], 3):
        if len(words) != length or words[at] not in ("-1", "1"):
            raise damaged(name, f"line {number}: {' '.join(words)[:60]!r}", f"a file name and {len(columns)} times −1 or 1")
    return {words[0]: int(words[at] == "1") for words in lines[2:]}


def _read_parts(lines: list[list[str]]) -> dict[str, int]:
    """File name to 0 (train), 1 (validation) or 2 (test)."""
    if not lines:
        raise damaged(CELEBA_PARTS.name, "no lines", "a line for every image")
    for number, words in enumerate(lines, 1):
        if len(words) != 2 or words[1] not in ("0", "1", "2"):
            raise damaged(CELEBA_PARTS.name, f"line {number}: {' '.join(words)[:60]!r}", "a file name and 0, 1 or 2")
    return {words[0]: int(words[1]) for words in lines}


def _list_files(location: Path) -> dict[str, str]:
    """The files of a folder or a zip archive: bare name to path inside it."""
    try:
        if location.is_dir():
            return {entry.name: entry.name for entry in os.scandir(location)}
        with zipfile.ZipFile(location) as archive:
            return {PurePosixPath(name).name: name for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile) as error:
        raise cannot_read(location, error) from error


def list_imagenet(folder: Path, *, unofficial: bool) -> ImageListing:
    """ImageNet's class folders train/n01440764/*.JPEG and val/n01440764/*.JPEG; classes are numbered by name.

    The train images are shuffled once with a fixed seed: sorted by name, the first N would be of few classes. There are no
    checksums: the caller compares the numbers of images with the published ones.
    """
    locations = {part: find_file(folder, part) or folder / part for part in ("train", "val")}
    wnids = {part: _class_folders(location) for part, location in locations.items()}
    if wnids["train"] != wnids["val"]:
        odd = sorted(set(wnids["train"]) ^ set(wnids["val"]))
        found = f"{len(wnids['train'])} and {len(wnids['val'])} class folders, {len(odd)} of them only in one: {odd[0]} …"
        remedy = "unpack every class into its folder in train, and move every image in val into the folder of its class"
        raise unreadable("train and val have other classes", folder, found, "the same class folders in both", remedy)
    train, test = (_in_class_folders(location, wnids["train"]) for location in locations.values())
    order = np.random.default_rng(ORDER).permutation(len(train.names))
    train = ImageFiles(train.location, tuple(train.names[i] for i in order.tolist()), train.labels[order])
    source = f"class folders; no checksums exist, images are counted; train images in the order of seed {ORDER}"
    return ImageListing(len(wnids["train"]), train, test, short_side, True, source)


def _class_folders(location: Path) -> list[str]:
    try:
        names = sorted(entry.name for entry in os.scandir(location) if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise cannot_read(location, error) from error
    if not names:
        expected = "a folder for every class, such as n01440764, with its images"
        remedy = "put every image into the folder of its class; for val, the development kit has the classes"
        raise unreadable("no class folders", location, "no folders", expected, remedy)
    return names


def _in_class_folders(location: Path, wnids: Sequence[str]) -> ImageFiles:
    names: list[str] = []
    labels: list[int] = []
    for label, wnid in enumerate(wnids):
        try:
            files = sorted(entry.name for entry in os.scandir(location / wnid) if entry.name.lower().endswith(SUFFIXES))
        except OSError as error:
            raise cannot_read(location / wnid, error) from error
        names += [f"{wnid}/{file}" for file in files]
        labels += [label] * len(files)
    return ImageFiles(location, tuple(names), np.array(labels, np.int64))


def middle_square(image: Image, size: int) -> Image:
    """CelebA: the middle square (178 × 178 of 178 × 218), resized with Pillow's bilinear filter, which is antialiased."""
    from PIL.Image import Resampling

    edge = min(image.size)
    left, top = ((side - edge) // 2 for side in image.size)
    return image.crop((left, top, left + edge, top + edge)).resize((size, size), Resampling.BILINEAR)


def short_side(image: Image, size: int) -> Image:
    """ImageNet: the shorter side resized to size · 256/224, by the same filter, then the middle square of `size`."""
    from PIL.Image import Resampling

    short = round(size * 256 / 224)
    width, height = (short * side // min(image.size) for side in image.size)
    left, top = (width - size) // 2, (height - size) // 2
    return image.resize((width, height), Resampling.BILINEAR).crop((left, top, left + size, top + size))


def decode_part(
    folder: Path, part: str, files: ImageFiles, fit: Fit, size: int, workers: int
) -> tuple[ImageSplit, dict[str, str]]:
    """Decode a part into `folder`: inputs (n, 3, size, size), labels, the list of files; returns also their digests."""
    listing = "".join(f"{label}\t{name}\n" for name, label in zip(files.names, files.labels.tolist(), strict=True))
    small = {f"{part}.files.txt": listing.encode(), f"{part}.labels.npy": npy_bytes(files.labels)}
    digests = {name: write_digested(folder / name, content) for name, content in small.items()}
    array = f"{part}.inputs.npy"
    digests[array] = _decode_all(folder / array, files, fit, size, workers, digests[f"{part}.files.txt"])
    return ImageSplit(npy.mapped(folder / array, f"remove it, and {AGAIN}"), files.labels), digests


def _decode_all(target: Path, files: ImageFiles, fit: Fit, size: int, workers: int, listing: str) -> str:
    """Complete the array, resuming where an earlier run stopped; returns its digest. `listing`: the digest of the files."""
    scratch, progress_path, names = target.with_suffix(".part"), progress_file(target), files.names
    plan = {"files": listing, "size": size, "chunk": CHUNK}
    state = _read_progress(progress_path)
    if scratch.is_symlink():
        what, expected = "this is not the file that was begun", "a file of its own for every array"
        raise unreadable(what, scratch, "a link", expected, "remove it, or move it elsewhere")
    if state.get("plan") != plan or not (scratch.exists() or target.exists()):
        state = {"plan": plan, "chunks": [], "whole": ""}
    if not state["whole"]:
        header, length = store.npy_header((len(names), 3, size, size), np.dtype(np.uint8)), 3 * size * size * CHUNK
        whole = hashlib.sha256(header)
        digests = _intact_chunks(scratch, header, state["chunks"], length, whole)
        store.check_space(target.parent, length * (len(names) // CHUNK + 1 - len(digests)), target.name)
        if not digests:
            store.write_at(scratch, 0, header)
        done = min(len(digests) * CHUNK, len(names))
        chunks = [names[first : first + CHUNK] for first in range(done, len(names), CHUNK)]
        with progress(f"decoding {target.name}", len(names), "images") as tick:
            tick(done)
            for images in _in_order(partial(decode, files.location, fit, size), chunks, workers):
                content = images.data.cast("B")
                store.write_at(scratch, len(header) + len(digests) * length, content)
                whole.update(content)
                digests.append(store.digest(content))
                store.write_bytes(progress_path, sealed.seal({"plan": plan, "chunks": digests, "whole": ""}))
                tick(len(images))
        state = {"plan": plan, "chunks": digests, "whole": whole.hexdigest()}
        store.write_bytes(progress_path, sealed.seal(state))
    if scratch.exists():
        store.rename(scratch, target)
    return str(state["whole"])


def remove_progress(target: Path) -> None:
    """Remove the record of the chunks of an array that is complete."""
    if _read_progress(progress_file(target)).get("whole"):
        store.remove(progress_file(target))


def progress_file(target: Path) -> Path:
    """The file beside an array with the digests of its finished chunks."""
    return target.with_suffix(".progress.json")


def _read_progress(path: Path) -> dict[str, Any]:
    state = sealed.read_sealed(path)
    return state if isinstance(state, dict) else {}


def _intact_chunks(scratch: Path, header: bytes, digests: Sequence[str], length: int, whole: Any) -> list[str]:
    """The digests of an earlier run's chunks before the first damaged one; updates `whole`, the array's hash, with them."""
    intact: list[str] = []
    if not digests or not scratch.exists():
        return intact
    with scratch.open("rb") as file, progress(f"checking {scratch.name}", len(digests), "chunks") as tick:
        if file.read(len(header)) != header:
            return intact
        for expected in digests:
            content = file.read(length)
            if store.digest(content) != expected:
                break
            whole.update(content)
            intact.append(expected)
            tick(1)
    return intact


def _in_order(
    work: Callable[[Sequence[str]], NDArray[np.uint8]], chunks: Iterable[Sequence[str]], workers: int
) -> Iterator[NDArray[np.uint8]]:
    """The decoded chunks in order; at most two per worker are pending."""
    if workers == 1:
        yield from map(work, chunks)
        return
    with _worker_pool(workers) as pool:
        pending: deque[Any] = deque()
        for chunk in chunks:
            pending.append(pool.submit(work, chunk))
            if len(pending) == 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


@contextmanager
def _worker_pool(workers: int) -> Iterator[Any]:
    """A pool of processes that end with this one, and immediately if the block raises."""
    from concurrent.futures.process import BrokenProcessPool

    try:
        with process_pool(workers, _start_worker) as pool:
            yield pool
    except BrokenProcessPool:
        raise worker_died("workers") from None


def _start_worker() -> None:
    """Ctrl-C reaches the parent, which ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()


def decode(location: Path, fit: Fit, size: int, names: Sequence[str]) -> NDArray[np.uint8]:
    """Images (n, 3, size, size) of files in a folder or zip archive."""
    images = np.empty((len(names), 3, size, size), np.uint8)
    for row, name in enumerate(names):
        images[row] = decode_one(location, fit, size, name)
    return images


def decode_one(location: Path, fit: Fit, size: int, name: str) -> NDArray[np.uint8]:
    """The image (3, size, size) of one file, converted to RGB."""
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise not_installed("pillow", str(location)) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(_read_image(location, name)), formats=("JPEG", "PNG")) as image:
                return np.asarray(fit(image.convert("RGB"), size)).transpose(2, 0, 1)
    except Exception as error:  # Pillow raises many kinds for broken files
        where = f"{location}, {name}" if location.is_file() else location / name
        expected, remedy = "a whole JPEG or PNG image", "get this file again; images that are done are kept"
        found = f"{type(error).__name__}: {error}"
        raise unreadable("the image cannot be decoded", where, found, expected, remedy) from error


def _read_image(location: Path, name: str) -> bytes:
    if location.is_dir():
        with (location / name).open("rb") as file:
            content = file.read(MAX_IMAGE_BYTES + 1)
    else:
        archive = _open_zip(location, location.stat().st_mtime_ns)
        with archive.open(name) as member:
            content = member.read(MAX_IMAGE_BYTES + 1)
    if len(content) > MAX_IMAGE_BYTES:
        raise ValueError(f"more than {MAX_IMAGE_BYTES:,} bytes")
    return content


@lru_cache(maxsize=1)
def _open_zip(path: Path, changed: int) -> zipfile.ZipFile:
    """A zip archive that stays open, since reading its list of files takes a second; `changed`: its modification time."""
    return zipfile.ZipFile(path)
