"""The data sets by name: what is known of them, and how they come from the official files to prepared arrays."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from wdistill import store
from wdistill.datasets import arrays, pictures
from wdistill.datasets.locating import SIZES, folder_of, root_of
from wdistill.datasets.originals import Original, absent, download, missing, read_original
from wdistill.datasets.prepared import MANIFEST, Dataset, Rows, load_prepared, save_prepared, write_manifest
from wdistill.errors import ConfigError, FileError


@dataclass(frozen=True)
class Kind:
    """What is known of a data set before a file is read."""

    classes: int
    channels: int
    size: int  # height and width in pixels; where it can be chosen, the default
    rows: tuple[int, int]  # train and test, as published
    originals: tuple[Original, ...]
    prepare: Callable[[Request], None]  # from the official files to the prepared arrays
    get: str = ""  # where files without an address are to be had


@dataclass(frozen=True)
class Request:
    """One data set that is to be prepared."""

    name: str
    kind: Kind
    files: Path  # the folder of the official files
    target: Path  # the folder of the prepared arrays
    size: int
    workers: int
    unofficial: bool


def load(name: str, root: Path | None = None, size: int | None = None) -> Dataset:
    """A data set, prepared first, in this process, if its official files are there; `size` is for celeba and imagenet."""
    return prepare(name, root, size)


def prepare(
    name: str, root: Path | None = None, size: int | None = None, *, workers: int = 1, unofficial: bool = False
) -> Dataset:
    """Make the prepared arrays from the official files, unless they are there already; `unofficial` lets other files in."""
    kind, files = kind_of(name), root_of(root) / name
    target = prepared_folder(name, root, size)
    if not (target / MANIFEST).exists():
        lost = [each.name for each in missing(files, kind.originals)]
        if lost:
            found = f"{len(lost)} of {len(kind.originals)} missing"
            raise absent(files, lost, found, f"run: wdistill data {name} (it gets them, or says where they are to be had)")
        store.make_folder(target, parents=True)
        with store.owning(target):
            if not (target / MANIFEST).exists():  # another process may have been faster
                kind.prepare(Request(name, kind, files, target, size or kind.size, workers, unofficial))
    return load_prepared(target)


def prepared_folder(name: str, root: Path | None = None, size: int | None = None) -> Path:
    """Where the arrays of a data set go."""
    kind = kind_of(name)
    if size is not None and (size < 1 or (name not in SIZES and size != kind.size)):
        raise ConfigError(
            "this data set has no such size",
            where=f"{name}, size",
            found=str(size),
            expected="1 or more pixels" if name in SIZES else f"{kind.size}, the size of its images",
            remedy="choose another size"
            if name in SIZES
            else f"leave the size out; it can be chosen for {', '.join(SIZES)}",
        )
    return folder_of(name, root_of(root), size)


def get_originals(name: str, root: Path | None = None) -> None:
    """Download the official files that are missing; where they have no address, an error says where they are to be had."""
    kind, files = kind_of(name), root_of(root) / name
    lost = missing(files, kind.originals)
    if lost and kind.get:
        names = [each.name for each in lost]
        raise absent(files, names, f"{len(lost)} of {len(kind.originals)} missing", f"{kind.get}; put them into {files}")
    if lost:
        download(files, lost)


def state_of(name: str, root: Path | None = None) -> str:
    """In words, how far a data set is under `root`."""
    kind, files = kind_of(name), root_of(root) / name
    done = sorted(path.parent for path in files.glob(f"prepared*/{MANIFEST}"))
    if done:
        return "; ".join(f"{folder.name.replace('-', ' at ')}, {_verdict(folder)}" for folder in done)
    lost = missing(files, kind.originals)
    if not lost:
        return "files there, not prepared"
    return "no files" if len(lost) == len(kind.originals) else "missing: " + ", ".join(each.name for each in lost)


def _verdict(folder: Path) -> str:
    try:
        return "official" if load_prepared(folder).official else "unofficial"
    except FileError:
        return "damaged"


def kind_of(name: str) -> Kind:
    if name not in DATASETS:
        close = difflib.get_close_matches(name, DATASETS, 1)
        raise ConfigError(
            "no data set of this name",
            where="data set",
            found=name,
            expected=", ".join(DATASETS),
            remedy=f"did you mean {close[0]}?" if close else "choose one of them",
        )
    return DATASETS[name]


def _from_arrays(read: arrays.Reader) -> Callable[[Request], None]:
    """The way of data sets whose files hold arrays, which are read whole."""

    def made(asked: Request) -> None:
        contents: dict[str, bytes] = {}
        official = True
        for original in asked.kind.originals:
            found, published = read_original(asked.files, original, unofficial=asked.unofficial)
            contents |= found
            official &= published
        train, test = read(contents)
        shape = (asked.kind.channels, asked.size, asked.size)
        for name, rows in (("train", train), ("test", test)):
            if rows.inputs.shape[1:] != shape:
                raise arrays.damaged(f"{asked.files}: {name}", f"images of shape {rows.inputs.shape[1:]}", str(shape))
        source = _source(asked, ", ".join(each.name for each in asked.kind.originals), official)
        save_prepared(asked.target, Dataset(asked.name, asked.kind.classes, train, test, official, source))

    return made


def _from_pictures(listing: Callable[..., pictures.Listed]) -> Callable[[Request], None]:
    """The way of data sets whose files hold images, which are decoded chunk by chunk."""

    def made(asked: Request) -> None:
        listed = listing(asked.files, unofficial=asked.unofficial)
        found = (listed.classes, len(listed.train.names), len(listed.test.names))
        expected = (asked.kind.classes, *asked.kind.rows)
        if (found != expected and not asked.unofficial) or 0 in found:
            raise FileError(
                "the images are not in the published numbers",
                where=str(asked.files),
                found="{:,} classes, {:,} train and {:,} test images".format(*found),
                expected="{:,}, {:,} and {:,}".format(*expected),
                remedy="unpack all archives again; to use fewer images all the same, but some of each, pass --unofficial",
            )
        official = listed.official and found == expected
        parts: dict[str, Rows] = {}
        digests: dict[str, str] = {}
        for part, images in (("train", listed.train), ("test", listed.test)):
            parts[part], more = pictures.decode_part(asked.target, part, images, listed.fit, asked.size, asked.workers)
            digests |= more
        source = _source(asked, listed.source, official)
        dataset = Dataset(asked.name, listed.classes, parts["train"], parts["test"], official, source)
        write_manifest(asked.target, dataset, digests)
        for part in parts:
            store.remove(pictures.record_of(asked.target / f"{part}.inputs.npy"))

    return made


def _source(asked: Request, files: str, official: bool) -> str:
    return f"the official files: {files}" if official else f"files that are not the published ones, in their format: {files}"


def _packed(address: str, suffix: str, files: Mapping[str, tuple[str, str]]) -> tuple[Original, ...]:
    """Files that are packed each on its own: name to the MD5 of the packed file and the SHA-256 of its content."""
    return tuple(
        Original(f"{name}{suffix}", md5, f"{address}/{name}{suffix}", {name: sha256})
        for name, (md5, sha256) in files.items()
    )


SVHN = tuple(
    Original(name, md5, f"http://ufldl.stanford.edu/housenumbers/{name}")
    for name, md5 in (
        ("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
        ("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
    )
)
CIFAR10 = Original(
    "cifar-10-binary.tar.gz",
    "c32a1d4ab5d03f1284b67883e8d87530",
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    {
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
)
CIFAR100 = Original(
    "cifar-100-binary.tar.gz",
    "03b5dce01913d631647c71ecec9e9cb8",
    "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    {"train.bin": "6172c7755cfe09b2fe270c85cebc1b15", "test.bin": "4499cfba6c016c1be1438163640a0898"},
)
FASHION = _packed(
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    ".gz",
    {
        "train-images-idx3-ubyte": (
            "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        ),
        "train-labels-idx1-ubyte": (
            "25c81989df183df01b3e8a0aad5dffbe",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        ),
        "t10k-images-idx3-ubyte": (
            "bef4ecab320f06d8554ea6380940ec79",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        ),
        "t10k-labels-idx1-ubyte": (
            "bb300cfdad3c16e7a12a480ee83cd310",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
    },
)
MNIST = _packed(
    "https://ossci-datasets.s3.amazonaws.com/mnist",  # the first address no longer answers downloads
    ".gz",
    {
        "train-images-idx3-ubyte": (
            "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        "train-labels-idx1-ubyte": (
            "d53e105ee54ea40749a09fcbcd1e9432",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        "t10k-images-idx3-ubyte": (
            "9fb629c4189551a2d022fa330f9573f3",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        "t10k-labels-idx1-ubyte": (
            "ec29112dd5afa0611ce80d1b7f02629c",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    },
)
CELEBA = (pictures.CELEBA_IMAGES, pictures.CELEBA_ATTRIBUTES, pictures.CELEBA_PARTS)
IMAGENET = (Original("train", ""), Original("val", ""))  # folders

DATASETS: Mapping[str, Kind] = {
    "svhn": Kind(10, 3, 32, (73_257, 26_032), SVHN, _from_arrays(arrays.read_svhn)),
    "cifar10": Kind(10, 3, 32, (50_000, 10_000), (CIFAR10,), _from_arrays(arrays.read_cifar10)),
    "cifar100": Kind(100, 3, 32, (50_000, 10_000), (CIFAR100,), _from_arrays(arrays.read_cifar100)),
    "fashion": Kind(10, 1, 28, (60_000, 10_000), FASHION, _from_arrays(arrays.read_idx)),
    "mnist": Kind(10, 1, 28, (60_000, 10_000), MNIST, _from_arrays(arrays.read_idx)),
    "celeba": Kind(
        2,
        3,
        SIZES["celeba"],
        (162_770, 19_962),
        CELEBA,
        _from_pictures(pictures.list_celeba),
        "they are linked from https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html (Align&Cropped Images)",
    ),
    "imagenet": Kind(
        1000,
        3,
        SIZES["imagenet"],
        (1_281_167, 50_000),
        IMAGENET,
        _from_pictures(pictures.list_imagenet),
        "ILSVRC 2012 is to be had, after registration, from https://image-net.org/download-images; unpack the images into "
        "class folders, train/n01440764/*.JPEG and val/n01440764/*.JPEG",
    ),
}
