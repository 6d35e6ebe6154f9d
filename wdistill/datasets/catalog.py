"""The data sets by name: their published properties, and how official files become prepared arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from wdistill.core import store
from wdistill.core.errors import FileError, bad_value, not_one_of, unreadable
from wdistill.datasets import arrays, pictures
from wdistill.datasets.originals import Original, download, incomplete, missing, read_original
from wdistill.datasets.prepared import (
    MANIFEST,
    SIZES,
    Dataset,
    ImageSplit,
    begin,
    check_folder,
    data_root,
    is_prepared,
    load_prepared,
    prepared_folder,
    read_manifest,
    save_prepared,
    write_manifest,
)


@dataclass(frozen=True)
class DatasetInfo:
    """The published properties of a data set."""

    classes: int
    channels: int
    size: int  # height and width in pixels; the default where it can be chosen
    rows: tuple[int, int]  # train and test
    originals: tuple[Original, ...]
    prepare: Callable[[Preparation], None]  # from the official files to the prepared arrays
    instructions: str = ""  # how to get files that have no public download


@dataclass(frozen=True)
class Preparation:
    """One data set to be prepared, and the settings for it."""

    name: str
    info: DatasetInfo
    files: Path  # the folder of the official files
    target: Path  # the folder of the prepared arrays
    size: int
    workers: int
    unofficial: bool


def load(name: str, root: Path | None = None, size: int | None = None) -> Dataset:
    """A data set; it is prepared first, in this process, if it is not yet. `size` is for celeba and imagenet."""
    return prepare(name, root, size)


def prepare(
    name: str, root: Path | None = None, size: int | None = None, *, workers: int = 1, unofficial: bool = False
) -> Dataset:
    """Prepare the arrays from the official files, unless they exist; `unofficial` accepts files with other checksums."""
    info, files = dataset_info(name), data_root(root) / name
    target = checked_folder(name, root, size)
    if not is_prepared(target):
        absent = missing(files, info.originals)
        if absent:
            remedy = f"run: wdistill data {name} (it downloads them, or says where to get them)"
            raise incomplete(files, absent, f"{len(absent)} of {len(info.originals)} missing", remedy)
        check_folder(target)
        store.make_folder(target, parents=True)
        with store.lock(target):
            if not is_prepared(target):  # another process may have been faster
                info.prepare(Preparation(name, info, files, target, size or info.size, workers, unofficial))
    for part in ("train", "test"):  # also of a job that was stopped at its very end
        pictures.remove_progress(target / f"{part}.inputs.npy")
    return load_prepared(target)


def checked_folder(name: str, root: Path | None = None, size: int | None = None) -> Path:
    """The folder of a data set's prepared arrays; refuses a size that the data set does not have."""
    info, resizable = dataset_info(name), name in SIZES
    if size is not None and (size < 1 or (not resizable and size != info.size)):
        expected = "1 or more pixels" if resizable else f"{info.size}, the size of its images"
        remedy = "choose another size" if resizable else f"leave the size out; it can be chosen for {', '.join(SIZES)}"
        raise bad_value("this data set has no such size", f"{name}, size", size, expected, remedy)
    return prepared_folder(name, data_root(root), size)


def get_originals(name: str, root: Path | None = None) -> None:
    """Download the official files that are missing; where there is no download, an error says how to get them."""
    info, files = dataset_info(name), data_root(root) / name
    absent = missing(files, info.originals)
    if absent and info.instructions:
        found, remedy = f"{len(absent)} of {len(info.originals)} missing", f"{info.instructions}; put them into {files}"
        raise incomplete(files, absent, found, remedy)
    if absent:
        download(files, absent)


def state_of(name: str, root: Path | None = None) -> str:
    """The state of a data set under `root`, in words."""
    info, files = dataset_info(name), data_root(root) / name
    done = sorted(path.parent for path in files.glob(f"prepared*/{MANIFEST}"))
    if done:
        return "; ".join(f"{folder.name.replace('-', ' at ')}, {_prepared_state(folder)}" for folder in done)
    absent = [original.name for original in missing(files, info.originals)]
    if not absent:
        return "files there, not prepared"
    return "no files" if len(absent) == len(info.originals) else "missing: " + ", ".join(absent)


def _prepared_state(folder: Path) -> str:
    try:
        manifest = read_manifest(folder)
    except FileError:
        return "damaged"
    if not is_prepared(folder):
        return "files are missing"
    return "official" if manifest["official"] else "unofficial"


def dataset_info(name: str) -> DatasetInfo:
    if name not in DATASETS:
        raise not_one_of("no data set of this name", "data set", name, DATASETS)
    return DATASETS[name]


def _from_arrays(read: arrays.Reader) -> Callable[[Preparation], None]:
    """For data sets whose files are arrays: they are read whole."""

    def prepare(job: Preparation) -> None:
        contents: dict[str, bytes] = {}
        official = True
        for original in job.info.originals:
            files, published = read_original(job.files, original, unofficial=job.unofficial)
            contents |= files
            official &= published
        train, test = read(contents)
        shape = (job.info.channels, job.size, job.size)
        for part, images in (("train", train), ("test", test)):
            if images.inputs.shape[1:] != shape:
                raise arrays.damaged(f"{job.files}: {part}", f"images of shape {images.inputs.shape[1:]}", str(shape))
        source = _source(", ".join(original.name for original in job.info.originals), official)
        save_prepared(job.target, Dataset(job.name, job.info.classes, train, test, official, source))

    return prepare


def _from_pictures(list_images: Callable[..., pictures.ImageListing]) -> Callable[[Preparation], None]:
    """For data sets whose files are images: they are decoded chunk by chunk."""

    def prepare(job: Preparation) -> None:
        begin(job.target)
        listing = list_images(job.files, unofficial=job.unofficial)
        counts = (listing.classes, len(listing.train.names), len(listing.test.names))
        published = (job.info.classes, *job.info.rows)
        if (counts != published and not job.unofficial) or 0 in counts:
            found = "{:,} classes, {:,} train and {:,} test images".format(*counts)
            remedy = "unpack all archives again; to use fewer images anyway, but some of each part, pass --unofficial"
            expected = "{:,}, {:,} and {:,}".format(*published)
            raise unreadable("the images are not in the published numbers", job.files, found, expected, remedy)
        official = listing.official and counts == published
        parts: dict[str, ImageSplit] = {}
        digests: dict[str, str] = {}
        for part, files in (("train", listing.train), ("test", listing.test)):
            parts[part], part_digests = pictures.decode_part(job.target, part, files, listing.fit, job.size, job.workers)
            digests |= part_digests
        source = _source(listing.source, official)
        dataset = Dataset(job.name, listing.classes, parts["train"], parts["test"], official, source)
        write_manifest(job.target, dataset, digests)

    return prepare


def _source(files: str, official: bool) -> str:
    return f"the official files: {files}" if official else f"files that are not the published ones, in their format: {files}"


def _gzipped(url: str, checksums: str) -> tuple[Original, ...]:
    """Files compressed one by one; lines of a name, the MD5 of the .gz file and the SHA-256 of its content."""
    lines = [line.split() for line in checksums.split("\n") if line]
    return tuple(Original(f"{name}.gz", md5, f"{url}/{name}.gz", {name: sha256}) for name, md5, sha256 in lines)


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
FASHION = _gzipped(
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    """
train-images-idx3-ubyte 8d4fb7e6c68d591d4c3dfef9ec88bf0d c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888
train-labels-idx1-ubyte 25c81989df183df01b3e8a0aad5dffbe bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9
t10k-images-idx3-ubyte bef4ecab320f06d8554ea6380940ec79 5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b
t10k-labels-idx1-ubyte bb300cfdad3c16e7a12a480ee83cd310 0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34
""",
)
MNIST = _gzipped(
    "https://ossci-datasets.s3.amazonaws.com/mnist",  # the original server no longer answers
    """
train-images-idx3-ubyte f68b3c2dcbeaaa9fbdd348bbdeb94873 ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
train-labels-idx1-ubyte d53e105ee54ea40749a09fcbcd1e9432 65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
t10k-images-idx3-ubyte 9fb629c4189551a2d022fa330f9573f3 0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
t10k-labels-idx1-ubyte ec29112dd5afa0611ce80d1b7f02629c ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2
""",
)
CELEBA = (pictures.CELEBA_IMAGES, pictures.CELEBA_ATTRIBUTES, pictures.CELEBA_PARTS)
IMAGENET = (Original("train", ""), Original("val", ""))  # folders

DATASETS: Mapping[str, DatasetInfo] = {
    "svhn": DatasetInfo(10, 3, 32, (73_257, 26_032), SVHN, _from_arrays(arrays.read_svhn)),
    "cifar10": DatasetInfo(10, 3, 32, (50_000, 10_000), (CIFAR10,), _from_arrays(arrays.read_cifar10)),
    "cifar100": DatasetInfo(100, 3, 32, (50_000, 10_000), (CIFAR100,), _from_arrays(arrays.read_cifar100)),
    "fashion": DatasetInfo(10, 1, 28, (60_000, 10_000), FASHION, _from_arrays(arrays.read_idx)),
    "mnist": DatasetInfo(10, 1, 28, (60_000, 10_000), MNIST, _from_arrays(arrays.read_idx)),
    "celeba": DatasetInfo(
        2,
        3,
        SIZES["celeba"],
        (162_770, 19_962),
        CELEBA,
        _from_pictures(pictures.list_celeba),
        "they are linked from https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html (Align&Cropped Images)",
    ),
    "imagenet": DatasetInfo(
        1000,
        3,
        SIZES["imagenet"],
        (1_281_167, 50_000),
        IMAGENET,
        _from_pictures(pictures.list_imagenet),
        "ILSVRC 2012 is at https://image-net.org/download-images, after registration; unpack the images into class folders, "
        "train/n01440764/*.JPEG and val/n01440764/*.JPEG",
    ),
}
