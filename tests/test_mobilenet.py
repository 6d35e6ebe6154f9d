"""MobileNet is that of Keras: its size, its maps, its padding, its constants and how it begins."""

from __future__ import annotations

import errno
import math
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.distilling import QUICK, failing, go, students, undrawn
from wdistill.core.errors import ConfigError, StorageError
from wdistill.training.export import export_run, load_student
from wdistill.training.models.keras import SameConv2d, glorot_uniform
from wdistill.training.models.mobilenet import EndPadding, MobileNet

torch.set_num_threads(1)

FILTERS = [64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024]  # of Keras' blocks 1 to 13


def numbers(network: nn.Module) -> int:
    """All that Keras counts as parameters, the statistics of batch norm among them."""
    return sum(each.numel() for name, each in network.state_dict().items() if not name.endswith("num_batches_tracked"))


def counted(channels: int, classes: int, width: float, depth_multiplier: int) -> int:
    """The same by hand: kernels, and four numbers for each channel that is normalized."""
    before = int(32 * width)
    total = 9 * channels * before + 4 * before
    for filters in FILTERS:
        middle, after = before * depth_multiplier, int(filters * width)
        total += 9 * middle + 4 * middle + middle * after + 4 * after
        before = after
    return total + before * classes + classes


def maps_of(network: MobileNet, inputs: Tensor) -> list[tuple[int, ...]]:
    """Channels, height and width after the stem and after each stage."""
    found = [network.stem(inputs)]
    for stage in network.stages:
        found.append(stage(found[-1]))
    return [tuple(each.shape[1:]) for each in found]


@pytest.mark.parametrize(("width", "published"), [(1.0, 4_253_864), (0.75, 2_601_976), (0.5, 1_342_536), (0.25, 475_544)])
def test_it_has_the_published_number_of_parameters(width: float, published: int) -> None:
    assert numbers(MobileNet(3, 1000, width)) == published == counted(3, 1000, width, 1)


@pytest.mark.parametrize(("width", "depth_multiplier"), [(2.0, 1), (1.0, 2), (0.3, 3), (1 / 32, 1)])
def test_both_multipliers_count_as_by_hand(width: float, depth_multiplier: int) -> None:
    assert numbers(MobileNet(1, 7, width, depth_multiplier)) == counted(1, 7, width, depth_multiplier)


@pytest.mark.parametrize(
    ("channels", "size", "sides"),
    [
        (1, 28, [14, 14, 7, 3, 1, 1]),
        (3, 32, [16, 16, 8, 4, 2, 1]),
        (3, 33, [17, 17, 8, 4, 2, 1]),  # the stem rounds up and the blocks round down, as in Keras
        (3, 64, [32, 32, 16, 8, 4, 2]),
        (3, 224, [112, 112, 56, 28, 14, 7]),
    ],
)
def test_maps_halve_where_those_of_keras_do(channels: int, size: int, sides: list[int]) -> None:
    network = MobileNet(channels, 10, 0.25).train(False)
    inputs = torch.rand(2, channels, size, size + 32)
    assert [(count, side) for count, side, _ in maps_of(network, inputs)] == list(
        zip([8, 16, 32, 64, 128, 256], sides, strict=True)
    )
    assert network(inputs).shape == (2, 10)


def test_it_takes_images_of_any_size() -> None:
    network = MobileNet(1, 3, 1 / 32).train(False)
    for size in range(1, 40):
        assert network(torch.rand(1, 1, size, 40 - size)).shape == (1, 3)


def test_the_zeros_of_a_strided_block_are_at_the_end() -> None:
    ones = torch.ones(1, 1, 2, 1)
    assert EndPadding()(ones).tolist() == [[[[0, 1, 0], [0, 1, 0], [0, 0, 0]]]]


@pytest.mark.parametrize(
    ("side", "wanted"),
    [
        (4, [0 + 1 + 2, 2 + 3 + 0]),  # windows begin at 0 and 2; a zero after the end
        (5, [0 + 0 + 1, 1 + 2 + 3, 3 + 4 + 0]),  # a zero at both ends
    ],
)
def test_same_padding_puts_a_single_zero_at_the_end(side: int, wanted: list[int]) -> None:
    convolution = SameConv2d(1, 1, 3, stride=2, bias=False)
    nn.init.zeros_(convolution.weight)
    convolution.weight.data[0, 0, 1, :] = 1  # sums three in a row of the middle line
    line = torch.arange(float(side)).expand(1, 1, side, side)
    assert convolution(line)[0, 0, 0].tolist() == wanted
    convolution.weight.data = convolution.weight.data.transpose(2, 3).contiguous()
    assert convolution(line.transpose(2, 3))[0, 0, :, 0].tolist() == wanted


def test_constants_are_those_of_keras() -> None:
    modules = list(MobileNet(3, 10, 0.25).modules())
    norms = [each for each in modules if isinstance(each, nn.BatchNorm2d)]
    assert len(norms) == 27 and {(each.eps, each.momentum) for each in norms} == {(1e-3, 0.01)}
    assert [each.p for each in modules if isinstance(each, nn.Dropout)] == [1e-3]
    assert sum(isinstance(each, nn.ReLU6) for each in modules) == 27 and not any(isinstance(e, nn.ReLU) for e in modules)
    convolutions = [each for each in modules if isinstance(each, nn.Conv2d)]
    assert [each.bias is not None for each in convolutions] == [False] * 27 + [True]
    assert [number for number, each in enumerate(convolutions) if each.stride == (2, 2)] == [0, 3, 7, 11, 23]


@pytest.mark.parametrize("depth_multiplier", [1, 2])
def test_kernels_begin_as_glorot_says(depth_multiplier: int) -> None:
    torch.manual_seed(0)
    network = MobileNet(3, 10, 0.5, depth_multiplier)
    depthwise, pointwise = network.stages[4][1][0], network.stages[4][1][3]  # the last block, of 512 channels
    assert isinstance(depthwise, nn.Conv2d) and isinstance(pointwise, nn.Conv2d)
    bounds = {depthwise: 9 * 512 + 9 * depth_multiplier, pointwise: 512 * depth_multiplier + 512}
    for convolution, fans in bounds.items():
        bound = math.sqrt(6 / fans)
        assert 0.99 * bound < convolution.weight.abs().max() <= bound
        assert convolution.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)
        assert abs(convolution.weight.mean().item()) < 0.05 * bound
    (classifier,) = (each for each in network.classifier if isinstance(each, nn.Conv2d))
    assert classifier.bias is not None and not classifier.bias.any()


def test_glorot_depends_on_all_channels() -> None:
    few, many = nn.Conv2d(4, 400, 1), nn.Conv2d(400, 4, 1)
    for each in (few, many):
        glorot_uniform(each)
        assert 0.98 * math.sqrt(6 / 404) < each.weight.abs().max() <= math.sqrt(6 / 404)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_order_of_memory_changes_speed_alone(channels: int) -> None:
    torch.manual_seed(0)
    network, inputs, seen = MobileNet(channels, 10, 0.25).train(False), torch.rand(4, channels, 32, 32), []
    plain = network.classifier(network.stages(network.stem(inputs)))
    network.stages[3].register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    torch.testing.assert_close(network(inputs), plain, rtol=1e-4, atol=1e-5)
    assert seen[0].is_contiguous(memory_format=torch.channels_last) and not seen[0].is_contiguous()
    assert all(each.is_contiguous() for each in network.state_dict().values())  # what is stored has the usual order


@pytest.mark.parametrize("size", [28, 32])
def test_gradients_are_finite_and_reach_every_parameter(size: int) -> None:
    torch.manual_seed(0)
    network = MobileNet(3, 5, 0.25)
    nn.functional.cross_entropy(network(torch.rand(8, 3, size, size)), torch.arange(8) % 5).backward()
    for name, each in network.named_parameters():
        assert each.grad is not None and each.grad.isfinite().all() and each.grad.any(), name


@pytest.mark.parametrize("width", [0.03, 0.0, -1.0, math.inf, math.nan])
def test_a_network_without_filters_is_refused(width: float) -> None:
    with pytest.raises(ConfigError, match="width"):
        MobileNet(3, 10, width)


@pytest.mark.proof
@pytest.mark.slow
def test_a_distillation_goes_on_with_the_same_bits_and_is_exported(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (56,), generator=generator)
    images = torch.rand(56, 1, 28, 28, generator=generator) + labels[:, None, None, None] / 3
    rows = {"labeled": slice(0, 16), "validation": slice(16, 28), "unlabeled": slice(28, 48), "test": slice(48, 56)}
    data = {name: (images[part], labels[part]) for name, part in rows.items()}
    models = partial(MobileNet, 1, 3, 0.25), partial(MobileNet, 1, 3, 0.125)
    with undrawn():
        with failing(0, errno.ENOSPC) as operations:
            whole = go(*models, QUICK, **data, run=tmp_path / "whole")
        with failing(len(operations) * 3 // 4, errno.ENOSPC), pytest.raises(StorageError):
            go(*models, QUICK, **data, run=tmp_path / "stopped")
        assert (tmp_path / "stopped" / "arms").exists()  # it was training the arm
        again = go(*models, QUICK, **data, run=tmp_path / "stopped")
    assert students(again) == students(whole)
    export_run(tmp_path / "stopped", tmp_path / "student")
    student = load_student(tmp_path / "student")
    assert isinstance(student, MobileNet)
    assert student.arguments == {"channels": 1, "classes": 3, "width": 0.125, "depth_multiplier": 1}
    assert torch.equal(student(images), whole.student(images))
