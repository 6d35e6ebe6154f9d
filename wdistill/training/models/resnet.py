"""ResNets: for small images as in Keras' cifar10_resnet example, and for ImageNet as in torchvision."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from wdistill.core.errors import bad_value
from wdistill.training.models.keras import SameConv2d, he_normal, normalization

STEP = {1: 6, 2: 9}  # by version, the layers that one more unit in each of the three stages adds to a depth of 2
UNITS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}  # of ImageNet's stages, by depth


class CifarResNet(nn.Module):
    """Three stages, two of them with stride 2, and a mean over pixels; images (b, channels, h, w) → logits (b, classes).

    Version 1 (depth 6n + 2) has pairs of 3 × 3, version 2 (9n + 2) bottlenecks that start with batch norm and ReLU.
    As in Keras' example: kernels and the linear layer are initialised truncated He normal, every convolution has a bias,
    biases start at 0, batch norm has epsilon 1e-3 and momentum 0.99. Its L2 term is the recipe's decayed="kernels".
    """

    def __init__(self, channels: int, classes: int, depth: int, version: int = 2) -> None:
        super().__init__()
        self.arguments = {"channels": channels, "classes": classes, "depth": depth, "version": version}
        units, before = _units(depth, version), 16
        self.stem = nn.Sequential(SameConv2d(channels, before, 3), normalization(before), nn.ReLU())
        self.stages = nn.Sequential()
        for stage in range(3):
            blocks, after = nn.Sequential(), (64 if version == 2 else 16) * 2**stage
            for unit in range(units):
                stride = 2 if stage > 0 and unit == 0 else 1
                shortcut = nn.Identity() if before == after else SameConv2d(before, after, 1, stride)
                if version == 1:
                    blocks.append(Unit(_pair(before, after, stride), shortcut, nn.ReLU()))
                else:
                    middle = 16 if stage == 0 else after // 2
                    residual = _bottleneck(before, middle, after, stride, opening=stage > 0 or unit > 0)
                    blocks.append(Unit(residual, shortcut, nn.Identity()))
                before = after
            self.stages.append(blocks)
        closing = [normalization(before), nn.ReLU()] if version == 2 else []
        self.classifier = nn.Sequential(*closing, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                he_normal(module.weight)
                nn.init.zeros_(module.bias)  # type: ignore[arg-type] # all of them have one

    def forward(self, inputs: Tensor) -> Tensor:
        maps = self.stem(inputs).contiguous(memory_format=torch.channels_last)  # faster on a CPU
        logits: Tensor = self.classifier(self.stages(maps))
        return logits


class ResNet(nn.Module):
    """ImageNet's ResNet of 18 or 50 layers, with a 7 × 7 stem; images (b, channels, h, w) → logits (b, classes).

    The bottlenecks of 50 have their stride in the 3 × 3 (v1.5, as in torchvision), not in the first 1 × 1 as the original.
    Kernels are initialised He normal by their fan out; the linear layer and batch norm have torch's defaults.
    """

    def __init__(self, channels: int, classes: int, depth: int) -> None:
        super().__init__()
        if depth not in UNITS:
            nearest, expected = min(UNITS, key=lambda one: abs(one - depth)), " or ".join(map(str, UNITS))
            remedy = f"write depth={nearest}; resnet_cifar has other depths"
            raise bad_value("there is no ResNet of this depth here", "ResNet", f"depth={depth}", expected, remedy)
        self.arguments = {"channels": channels, "classes": classes, "depth": depth}
        before = 64
        self.stem = nn.Sequential(*_normalized(channels, before, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.stages = nn.Sequential()
        for stage, units in enumerate(UNITS[depth]):
            blocks, width = nn.Sequential(), 64 * 2**stage
            after = width if depth == 18 else 4 * width
            for unit in range(units):
                stride = 2 if stage > 0 and unit == 0 else 1
                shortcut = nn.Identity() if before == after else nn.Sequential(*_normalized(before, after, 1, stride))
                blocks.append(Unit(_residual(before, width, after, stride), shortcut, nn.ReLU()))
                before = after
            self.stages.append(blocks)
        self.classifier = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.stages(self.stem(inputs)))
        return logits


class Unit(nn.Module):
    """closing(shortcut(maps) + residual(maps)); the shortcut is a projection where the residual changes the shape."""

    def __init__(self, residual: nn.Module, shortcut: nn.Module, closing: nn.Module) -> None:
        super().__init__()
        self.residual, self.shortcut, self.closing = residual, shortcut, closing

    def forward(self, maps: Tensor) -> Tensor:
        added: Tensor = self.closing(self.shortcut(maps) + self.residual(maps))
        return added


def _units(depth: int, version: int) -> int:
    """The number of units in each stage of a CifarResNet."""
    if version not in STEP:
        remedy = "leave it out: version 2 is the one with 11 layers"
        raise bad_value("no such version of ResNet", "CifarResNet", f"version={version}", "1 or 2", remedy)
    step = STEP[version]
    units, rest = divmod(depth - 2, step)
    if units < 1 or rest:
        nearest = sorted({max(near, step + 2) for near in (depth - rest, depth - rest + step)})
        what, remedy = f"there is no ResNet of this depth in version {version}", " or ".join(f"depth={n}" for n in nearest)
        raise bad_value(what, "CifarResNet", f"depth={depth}", f"{step}n + 2", f"write {remedy}")
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
    """Version 2 of Keras' example; `opening`: not in the very first unit, since the stem ends with batch norm and ReLU."""
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
    """ImageNet's: a pair of 3 × 3 convolutions, or a bottleneck where `after` is more than `width`."""
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
    """A convolution without bias, and batch norm."""
    return nn.Conv2d(before, after, size, stride, size // 2, bias=False), nn.BatchNorm2d(after)
