"""The ResNets are those of Keras' example and of ImageNet: their sizes, maps, constants and how they begin."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from wdistill.core.errors import ConfigError
from wdistill.training.models.keras import he_normal
from wdistill.training.models.resnet import CifarResNet, ResNet

torch.set_num_threads(1)


def numbers(network: nn.Module) -> int:
    """All that Keras counts as parameters, the statistics of batch norm among them."""
    return sum(each.numel() for name, each in network.state_dict().items() if not name.endswith("num_batches_tracked"))


def counted(channels: int, classes: int, depth: int, version: int) -> int:
    """The same by hand: a·b·s² + b for a convolution with bias, and four numbers for each channel that is normalized."""

    def c(a: int, b: int, s: int) -> int:
        return a * b * s * s + b

    total = c(channels, 16, 3) + 4 * 16
    if version == 1:
        n = (depth - 2) // 6
        for filters in (16, 32, 64):
            total += 2 * n * (c(filters, filters, 3) + 4 * filters)
        for filters in (16, 32):  # where a stage begins, half the filters come in, and a projection goes by
            total += c(filters, 2 * filters, 3) - c(2 * filters, 2 * filters, 3) + c(filters, 2 * filters, 1)
        return total + 64 * classes + classes
    n = (depth - 2) // 9
    for before, middle, after in ((16, 16, 64), (64, 64, 128), (128, 128, 256)):
        inside = 4 * middle + c(middle, middle, 3) + 4 * middle + c(middle, after, 1)
        first = 4 * before + c(before, middle, 1) + inside + c(before, after, 1)
        total += first + (n - 1) * (4 * after + c(after, middle, 1) + inside)
    total -= 4 * 16  # the very first unit does not normalize what the stem has normalized
    return total + 4 * 256 + 256 * classes + classes


def maps_of(network: CifarResNet | ResNet, inputs: Tensor) -> list[tuple[int, ...]]:
    """Channels, height and width after the stem and after each stage."""
    found = [network.stem(inputs)]
    for stage in network.stages:
        found.append(stage(found[-1]))
    return [tuple(each.shape[1:]) for each in found]


@pytest.mark.parametrize(
    ("version", "depth", "published"),
    [
        (1, 20, 274_442),
        (1, 56, 861_770),
        (1, 110, 1_742_762),
        (2, 11, 299_178),
        (2, 20, 574_090),
        (2, 56, 1_673_738),
        (2, 110, 3_323_210),
    ],
)
def test_those_of_keras_have_as_many_parameters_as_there(version: int, depth: int, published: int) -> None:
    assert numbers(CifarResNet(3, 10, depth, version)) == published == counted(3, 10, depth, version)


@pytest.mark.parametrize(("depth", "published"), [(18, 11_689_512), (50, 25_557_032)])
def test_those_of_imagenet_have_the_published_number_of_parameters(depth: int, published: int) -> None:
    assert sum(each.numel() for each in ResNet(3, 1000, depth).parameters()) == published


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("channels", "size", "sides"),
    [(1, 28, [28, 28, 14, 7]), (3, 32, [32, 32, 16, 8]), (3, 64, [64, 64, 32, 16]), (3, 30, [30, 30, 15, 8])],
)
def test_those_of_keras_halve_twice(version: int, channels: int, size: int, sides: list[int]) -> None:
    network = CifarResNet(channels, 2, 20, version).train(False)
    inputs, filters = torch.rand(2, channels, size, size), [16, 64, 128, 256] if version == 2 else [16, 16, 32, 64]
    wanted = [(count, side, side) for count, side in zip(filters, sides, strict=True)]
    assert maps_of(network, inputs) == wanted and network(inputs).shape == (2, 2)


@pytest.mark.slow
@pytest.mark.parametrize(("depth", "filters"), [(18, [64, 64, 128, 256, 512]), (50, [64, 256, 512, 1024, 2048])])
@pytest.mark.parametrize(("size", "sides"), [(64, [16, 16, 8, 4, 2]), (224, [56, 56, 28, 14, 7])])
def test_those_of_imagenet_halve_five_times(depth: int, filters: list[int], size: int, sides: list[int]) -> None:
    with torch.no_grad():
        network, inputs = ResNet(3, 10, depth).train(False), torch.rand(1, 3, size, size)
        wanted = [(count, side, side) for count, side in zip(filters, sides, strict=True)]
        assert maps_of(network, inputs) == wanted and network(inputs).shape == (1, 10)


def test_a_bottleneck_of_imagenet_halves_in_its_middle() -> None:
    for stage in ResNet(3, 2, 50).stages[1:]:
        strides = [each.stride[0] for each in stage[0].residual if isinstance(each, nn.Conv2d)]
        assert strides == [1, 2, 1] and stage[0].shortcut[0].stride == (2, 2)


def test_a_bottleneck_of_keras_halves_at_its_beginning() -> None:
    for stage in CifarResNet(3, 2, 20).stages[1:]:
        strides = [each.stride[0] for each in stage[0].residual if isinstance(each, nn.Conv2d)]
        assert strides == [2, 1, 1] and stage[0].shortcut.stride == (2, 2)


def test_a_unit_adds_to_its_input() -> None:
    inputs = torch.rand(2, 64, 4, 4) - 0.5
    unit = CifarResNet(3, 2, 20).train(False).stages[0][1]
    nn.init.zeros_(unit.residual[-1].weight)
    assert torch.equal(unit(inputs), inputs)  # version 2 leaves the sum as it is
    unit = CifarResNet(3, 2, 14, version=1).train(False).stages[2][1]
    nn.init.zeros_(unit.residual[-1].weight)
    assert torch.equal(unit(inputs), inputs.relu())


@pytest.mark.parametrize("version", [1, 2])
def test_constants_and_beginnings_are_those_of_keras(version: int) -> None:
    torch.manual_seed(0)
    network = CifarResNet(3, 10, 20, version)
    norms = [each for each in network.modules() if isinstance(each, nn.BatchNorm2d)]
    assert {(each.eps, each.momentum) for each in norms} == {(1e-3, 0.01)}
    weighted = [each for each in network.modules() if isinstance(each, nn.Conv2d | nn.Linear)]
    assert all(each.bias is not None and not each.bias.any() for each in weighted)
    for each in weighted:
        wanted = math.sqrt(2 / each.weight[0].numel())
        assert each.weight.std().item() == pytest.approx(wanted, rel=0.12 if each.weight.numel() < 4000 else 0.03)
        assert each.weight.abs().max() <= 2 * wanted / 0.8796


def test_he_normal_is_cut_off_and_keeps_its_variance() -> None:
    weight = torch.empty(1000, 50)
    torch.manual_seed(0)
    he_normal(weight)
    assert weight.std().item() == pytest.approx(0.2, rel=0.01)
    assert 0.2 * 2.25 < weight.abs().max() <= 0.2 * 2 / 0.8796


def test_those_of_imagenet_begin_as_he_says() -> None:
    torch.manual_seed(0)
    network = ResNet(3, 10, 18)
    for each in network.modules():
        if isinstance(each, nn.Conv2d):
            wanted = math.sqrt(2 / (each.out_channels * each.kernel_size[0] ** 2))
            assert each.bias is None and each.weight.std().item() == pytest.approx(wanted, rel=0.03)
        if isinstance(each, nn.BatchNorm2d):
            assert each.weight.eq(1).all() and not each.bias.any() and (each.eps, each.momentum) == (1e-5, 0.1)


@pytest.mark.parametrize("version", [1, 2])
def test_the_order_of_memory_changes_speed_alone(version: int) -> None:
    torch.manual_seed(0)
    network, inputs = CifarResNet(3, 10, 20, version).train(False), torch.rand(4, 3, 32, 32)
    plain = network.classifier(network.stages(network.stem(inputs)))
    torch.testing.assert_close(network(inputs), plain, rtol=1e-4, atol=1e-4)
    assert all(each.is_contiguous() for each in network.state_dict().values())


@pytest.mark.parametrize("network", [CifarResNet(1, 5, 11), CifarResNet(1, 5, 8, version=1), ResNet(1, 5, 18)])
def test_gradients_are_finite_and_reach_every_parameter(network: nn.Module) -> None:
    nn.functional.cross_entropy(network(torch.rand(8, 1, 28, 28)), torch.arange(8) % 5).backward()
    for name, each in network.named_parameters():
        assert each.grad is not None and each.grad.isfinite().all(), name


@pytest.mark.parametrize(
    ("depth", "version", "said"),
    [
        (12, 2, "depth=11 or depth=20"),
        (109, 2, "depth=101 or depth=110"),
        (32, 2, "depth=29 or depth=38"),
        (11, 1, "depth=8 or depth=14"),
        (2, 2, "depth=11"),
        (0, 1, "depth=8"),
        (-30, 1, "depth=8"),
    ],
)
def test_a_depth_that_is_not_possible_names_the_nearest(depth: int, version: int, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        CifarResNet(3, 10, depth, version)
    assert caught.value.remedy == f"write {said}"
    for each in said.split(" or "):
        CifarResNet(3, 10, int(each.removeprefix("depth=")), version)


def test_there_are_two_versions_and_two_depths() -> None:
    with pytest.raises(ConfigError, match="1 or 2"):
        CifarResNet(3, 10, 20, version=3)
    for depth, nearest in ((17, 18), (34, 18), (35, 50), (101, 50)):
        with pytest.raises(ConfigError, match=f"depth={nearest};"):
            ResNet(3, 10, depth)
