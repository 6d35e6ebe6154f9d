"""ResNets: those of Keras' cifar10_resnet example, for small images, and those of ImageNet."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from wdistill.errors import ConfigError
from wdistill.training.keras import SameConv2d, he_normal, normalization

STEP = {1: 6, 2: 9}  # layers that one more unit in each of the three stages adds to a depth of 2, by version
UNITS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}  # in the stages of ImageNet's, by depth


class CifarResNet(nn.Module):
    """Three stages, of which two halve, and a mean over pixels; images (b, channels, h, w) → logits (b, classes).

    Version 1 (depth 6n + 2) has pairs of 3 × 3, version 2 (9n + 2) bottlenecks that begin with batch norm and ReLU.
    As in Keras' example: kernels and the linear layer begin He normal, truncated, and biases at 0, every convolution has
    one; batch norm has epsilon 1e-3 and keeps 0.99 of its averages. The example's L2 is the recipe's: decayed="kernels".
    """

    def __init__(self, channels: int, classes: int, depth: int, version: int = 2) -> None:
        super().__init__()
        self.arguments = {"channels": channels, "classes": classes, "depth": depth, "version": version}
        units, before = _units(depth, version), 16
        self.stem = nn.Sequential(SameConv2d(channels, before, 3), normalization(before), nn.ReLU())
        self.stages = nn.Sequential()
        for stage in range(3):
            blocks, after = nn.Sequential(), (64 if version == 2 else 16) * 2**stage
            for place in range(units):
                stride = 2 if stage > 0 and place == 0 else 1
                shortcut = nn.Identity() if before == after else SameConv2d(before, after, 1, stride)
                if version == 1:
                    blocks.append(Unit(_pair(before, after, stride), shortcut, nn.ReLU()))
                else:
                    middle = 16 if stage == 0 else after // 2
                    residual = _bottleneck(before, middle, after, stride, opening=stage > 0 or place > 0)
                    blocks.append(Unit(residual, shortcut, nn.Identity()))
                before = after
            self.stages.append(blocks)
        closing = [normalization(before), nn.ReLU()] if version == 2 else []
        self.classifier = nn.Sequential(*closing, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))
        for each in self.modules():
            if isinstance(each, nn.Conv2d | nn.Linear):
                he_normal(each.weight)
                nn.init.zeros_(each.bias)  # type: ignore[arg-type] # all of them have one

    def forward(self, inputs: Tensor) -> Tensor:
        maps = self.stem(inputs).contiguous(memory_format=torch.channels_last)  # faster on a processor
        logits: Tensor = self.classifier(self.stages(maps))
        return logits


class ResNet(nn.Module):
    """ImageNet's, with a 7 × 7 stem that quarters, of 18 or 50 layers; images (b, channels, h, w) → logits (b, classes).

    The bottlenecks of 50 halve in their 3 × 3 (v1.5, today's usual one), not in the first 1 × 1 as the original does.
    Nothing follows Keras: as in torchvision, kernels begin He normal by their fan out, the linear layer as torch begins it,
    and batch norm has torch's epsilon 1e-5 and keeps 0.9 of its averages.
    """

    def __init__(self, channels: int, classes: int, depth: int) -> None:
        super().__init__()
        if depth not in UNITS:
            raise ConfigError(
                "there is no ResNet of this depth here",
                where="ResNet",
                found=f"depth={depth}",
                expected=" or ".join(map(str, UNITS)),
                remedy=f"write depth={min(UNITS, key=lambda known: abs(known - depth))}; resnet_cifar has other depths",
            )
        self.arguments = {"channels": channels, "classes": classes, "depth": depth}
        before = 64
        self.stem = nn.Sequential(*_normalized(channels, before, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.stages = nn.Sequential()
        for stage, units in enumerate(UNITS[depth]):
            blocks, width = nn.Sequential(), 64 * 2**stage
            after = width if depth == 18 else 4 * width
            for place in range(units):
                stride = 2 if stage > 0 and place == 0 else 1
                shortcut = nn.Identity() if before == after else nn.Sequential(*_normalized(before, after, 1, stride))
                blocks.append(Unit(_residual(before, width, after, stride), shortcut, nn.ReLU()))
                before = after
            self.stages.append(blocks)
        self.classifier = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))
        for each in self.modules():
            if isinstance(each, nn.Conv2d):
                nn.init.kaiming_normal_(each.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.stages(self.stem(inputs)))
        return logits


class Unit(nn.Module):
    """What a few layers add to their input, or to its projection where their output has another shape."""

    def __init__(self, residual: nn.Module, shortcut: nn.Module, closing: nn.Module) -> None:
        super().__init__()
        self.residual, self.shortcut, self.closing = residual, shortcut, closing

    def forward(self, maps: Tensor) -> Tensor:
        added: Tensor = self.closing(self.shortcut(maps) + self.residual(maps))
        return added


def _units(depth: int, version: int) -> int:
    """Of each stage of a CifarResNet."""
    if version not in STEP:
        raise ConfigError(
            "no such version of ResNet",
            where="CifarResNet",
            found=f"version={version}",
            expected=" or ".join(map(str, STEP)),
            remedy="leave it out: version 2 is the one with 11 layers",
        )
    step = STEP[version]
    units, rest = divmod(depth - 2, step)
    if units < 1 or rest:
        near = sorted({max(each, step + 2) for each in (depth - rest, depth - rest + step)})
        raise ConfigError(
            f"there is no ResNet of this depth in version {version}",
            where="CifarResNet",
            found=f"depth={depth}",
            expected=f"{step}n + 2",
            remedy="write " + " or ".join(f"depth={each}" for each in near),
        )
    return units


def _pair(before: int, after: int, stride: int) -> nn.Sequential:
    """Version 1 of Keras' example."""
    return nn.Sequential(
        SameConv2d(before, after, 3, stride),
        normalization(after),
        nn.ReLU(),
        SameConv2d(after, after, 3),
        normalization(after),
    )


def _bottleneck(before: int, middle: int, after: int, stride: int, opening: bool) -> nn.Sequential:
    """Version 2 of Keras' example; the very first unit lacks the `opening`, since the stem has ended with it."""
    return nn.Sequential(
        *([normalization(before), nn.ReLU()] if opening else []),
        SameConv2d(before, middle, 1, stride),
        normalization(middle),
        nn.ReLU(),
        SameConv2d(middle, middle, 3),
        normalization(middle),
        nn.ReLU(),
        SameConv2d(middle, after, 1),
    )


def _residual(before: int, width: int, after: int, stride: int) -> nn.Sequential:
    """ImageNet's: a pair of 3 × 3, or a bottleneck where more channels come out than it works on."""
    if after == width:
        return nn.Sequential(*_normalized(before, width, 3, stride), nn.ReLU(), *_normalized(width, width, 3))
    return nn.Sequential(
        *_normalized(before, width, 1),
        nn.ReLU(),
        *_normalized(width, width, 3, stride),
        nn.ReLU(),
        *_normalized(width, after, 1),
    )


def _normalized(before: int, after: int, size: int, stride: int = 1) -> tuple[nn.Module, ...]:
    """A convolution and its batch norm, whose bias is the only one."""
    return nn.Conv2d(before, after, size, stride, size // 2, bias=False), nn.BatchNorm2d(after)
