"""The reference networks, and networks by name: what is built, and what is said when it cannot be."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from wdistill.core.errors import ConfigError
from wdistill.training.models.mobilenet import MobileNet
from wdistill.training.models.networks import CNN, EXAMPLES, MLP, NETWORKS, TableMLP, build
from wdistill.training.models.resnet import CifarResNet, ResNet
from wdistill.training.models.text import TextBag

torch.set_num_threads(1)

MODULE = """
from torch import nn

made = 3
def make(): return nn.Linear(4, 2)
def make_class(): return nn.Linear
def make_nothing(): pass
def make_trouble(): raise RuntimeError("no weights at hand")
class Ours(nn.Module): pass
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current folder with the modules of a user."""
    (tmp_path / "their_networks.py").write_text(MODULE)
    (tmp_path / "their_typo.py").write_text("import torchh")
    (tmp_path / "their_syntax.py").write_text("def make(:")
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("their_"):
            del sys.modules[name]


@pytest.mark.parametrize("size", [4, 5, 8, 28, 32])
def test_the_cnn_takes_images_of_any_size(size: int) -> None:
    network = CNN(channels=3, classes=10, width=4)
    assert network(torch.rand(2, 3, size, size)).shape == (2, 10)
    assert network.train(False)(torch.rand(1, 3, size, size + 1)).shape == (1, 10)


def test_the_mlp_takes_inputs_of_any_shape() -> None:
    network = MLP(inputs=12, classes=3, hidden=(5, 4))
    inputs = torch.rand(2, 12)
    assert torch.equal(network(inputs), network(inputs.view(2, 3, 2, 2)))
    assert [tuple(p.shape) for p in MLP(12, 3, ()).parameters()] == [(3, 12), (3,)]


def test_the_cnn_is_small() -> None:
    assert 80_000 < sum(p.numel() for p in CNN(channels=3, classes=10, width=32).parameters()) < 120_000


BUILT = [
    MLP(6, 3, (5,)),
    CNN(2, 4, 3),
    MobileNet(2, 4, 0.25, 2),
    CifarResNet(2, 4, 8, version=1),
    ResNet(2, 4, 18),
    TextBag(2),
    TableMLP(6, 3, (5,)),
]


@pytest.mark.parametrize("network", BUILT, ids=list(NETWORKS))
def test_arguments_rebuild_the_network(network: MLP | CNN | MobileNet | CifarResNet | ResNet | TextBag) -> None:
    again = type(network)(**json.loads(json.dumps(network.arguments)))
    assert again.arguments == network.arguments
    again.load_state_dict(network.state_dict())


def test_reference_networks_by_name() -> None:
    assert set(NETWORKS) == {"mlp", "cnn", "mobilenet", "resnet_cifar", "resnet", "text", "table"}
    mlp, cnn = build("mlp:inputs=64,classes=10,hidden=32x16"), build("cnn:channels=1,classes=10,width=8")
    assert isinstance(mlp, MLP) and mlp.arguments == {"inputs": 64, "classes": 10, "hidden": [32, 16]}
    assert isinstance(cnn, CNN) and cnn.arguments == {"channels": 1, "classes": 10, "width": 8}
    assert build("mlp:inputs=64,classes=10").arguments["hidden"] == [128]  # type: ignore[index]
    assert build("mlp:inputs=64,classes=10,hidden=").arguments["hidden"] == []  # type: ignore[index]


@pytest.mark.slow
def test_networks_of_the_paper_by_name() -> None:
    def arguments(spec: str) -> dict[str, object]:
        return build(spec).arguments  # type: ignore[return-value]

    images = {"channels": 3, "classes": 10}
    text = "channels=3,classes=10"
    assert arguments(f"mobilenet:{text}") == {**images, "width": 1.0, "depth_multiplier": 1}
    assert arguments(f"mobilenet:{text},width=.25,depth_multiplier=2") == {**images, "width": 0.25, "depth_multiplier": 2}
    assert arguments(f"mobilenet:{text},width=2") == {**images, "width": 2.0, "depth_multiplier": 1}
    assert arguments(f"resnet_cifar:{text},depth=11") == {**images, "depth": 11, "version": 2}
    assert arguments(f"resnet_cifar:{text},depth=20,version=1") == {**images, "depth": 20, "version": 1}
    assert arguments(f"resnet:{text},depth=18") == {**images, "depth": 18}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_has_an_example_that_builds_it(name: str) -> None:
    assert type(build(EXAMPLES[name])) is NETWORKS[name]


def test_networks_of_the_user(here: Path) -> None:
    path = list(sys.path)
    assert isinstance(build("their_networks:make"), nn.Linear)
    assert isinstance(build("their_networks:Ours"), nn.Module)
    assert sys.path == path


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("mlp", "inputs=…, classes=…"),
        ("mlp:inputs=64", "classes=…"),
        ("mlp:inputs=64,classes=ten", "classes=ten"),
        ("mlp:inputs=0,classes=10", "inputs=0"),
        ("mlp:inputs=64,classes=10,hidden=32x", "hidden=32x"),
        ("mlp:inputs=64x2,classes=10", "inputs=64x2"),
        ("mlp:input=64,classes=10", "did you mean inputs"),
        ("mlp:inputs=64,inputs=64,classes=10", "twice"),
        ("cn:channels=1,classes=10", "did you mean cnn"),
        ("cnn:channels=1,classes=10,width=0.5", "width=0.5"),
        ("mobilenet", "channels=…, classes=…"),
        ("mobilenet:channels=3,classes=10,width=0", "width=0\n"),
        ("mobilenet:channels=3,classes=10,width=-1", "width=-1\n"),
        ("mobilenet:channels=3,classes=10,width=half", "a number above 0"),
        ("mobilenet:channels=3,classes=10,width=1e9", "width=1e9"),
        ("mobilenet:channels=3,classes=10,width=" + "9" * 999, "a number above 0"),
        ("mobilenet:channels=3,classes=10,width=0.01", "at least 1/32"),
        ("mobilenet:channels=3,classes=10,depth_multiplier=1.5", "depth_multiplier=1.5"),
        ("mobilenet:channels=3,classes=10,widht=2", "did you mean width"),
        ("resnet_cifar:channels=3,classes=10", "depth=…"),
        ("resnet_cifar:channels=3,classes=10,depth=50", "depth=47 or depth=56"),
        ("resnet_cifar:channels=3,classes=10,depth=20,version=3", "1 or 2"),
        ("resnet:channels=3,classes=10,depth=34", "18 or 50"),
        ("mobilnet:channels=3,classes=10", "did you mean mobilenet"),
        ("transformer", "package.module:function"),
        ("", "package.module:function"),
        (":make", "cannot be imported"),
        ("their_network:make", "no such module"),
        ("their_networks.deeper:make", "no such module"),
        ("their_networks.py:make", "write their_networks:make"),
        ("folder/their_networks.py:make", "write folder.their_networks:make"),
        ("their_typo:make", "cannot be imported"),
        ("their_typo:make", "No module named 'torchh'"),
        ("their_syntax:make", "SyntaxError"),
        ("their_networks:mak", "did you mean make?"),
        ("their_networks:made", "not a function"),
        ("their_networks:make_nothing", "NoneType"),
        ("their_networks:make_class", "return an instance"),
        ("their_networks:make_trouble", "RuntimeError: no weights at hand"),
    ],
)
def test_what_cannot_be_built_is_explained(here: Path, spec: str, said: str) -> None:
    path = list(sys.path)
    with pytest.raises(ConfigError) as caught:
        build(spec)
    assert said in str(caught.value) and str(caught.value).startswith(f"{spec}: " if spec else "")
    assert sys.path == path
