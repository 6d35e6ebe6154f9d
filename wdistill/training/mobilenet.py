"""MobileNet v1 as Keras has it: the paper's teachers, and its students on SVHN and CIFAR-10."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from wdistill.errors import ConfigError
from wdistill.training.keras import SameConv2d, glorot_uniform, normalization

STEM = 32  # filters of the first convolution
STAGES = ((64,), (128, 128), (256, 256), (512,) * 6, (1024, 1024))  # filters of the blocks


class MobileNet(nn.Module):
    """Depthwise separable convolutions, which halve five times; images (b, channels, h, w) → logits (b, classes).

    `width` multiplies all filters: Keras' alpha, and what the paper's "depth multiplier" is taken to be.
    `depth_multiplier` is Keras' argument of that name: the filters of a depthwise convolution for every channel.
    As in keras.applications without stored weights: kernels begin Glorot uniform and biases at 0, batch norm has epsilon
    1e-3 and keeps 0.99 of its averages, dropout is 1e-3, and padding at stride 2 is at the end.
    """

    def __init__(self, channels: int, classes: int, width: float = 1.0, depth_multiplier: int = 1) -> None:
        super().__init__()
        if not 1 / STEM <= width < math.inf:
            raise ConfigError(
                "not the width of a MobileNet",
                where="MobileNet",
                found=f"width={width:g}",
                expected=f"a number of at least 1/{STEM}, which leaves the first convolution one filter",
                remedy="write width=0.25, for example",
            )
        self.arguments = {
            "channels": channels,
            "classes": classes,
            "width": float(width),
            "depth_multiplier": depth_multiplier,
        }
        before = int(STEM * width)
        self.stem = nn.Sequential(SameConv2d(channels, before, 3, 2, bias=False), normalization(before), nn.ReLU6())
        self.stages = nn.Sequential()
        for stage, filters in enumerate(STAGES):
            blocks = nn.Sequential()
            for place, after in enumerate(int(count * width) for count in filters):
                blocks.append(_block(before, after, depth_multiplier, halving=stage > 0 and place == 0))
                before = after
            self.stages.append(blocks)
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Dropout(1e-3), nn.Conv2d(before, classes, 1), nn.Flatten()
        )
        for each in self.modules():
            if isinstance(each, nn.Conv2d):
                glorot_uniform(each)
                if each.bias is not None:
                    nn.init.zeros_(each.bias)

    def forward(self, inputs: Tensor) -> Tensor:
        maps = self.stem(inputs).contiguous(memory_format=torch.channels_last)  # faster on a processor
        logits: Tensor = self.classifier(self.stages(maps))
        return logits


class EndPadding(nn.Module):
    """Maps (b, c, h, w) with one more row and column of zeros at the end.

    A side of one pixel gets its zeros at both ends: the 3 × 3 that follows would not fit, and Keras has no images so small.
    """

    def forward(self, maps: Tensor) -> Tensor:
        height, width = maps.shape[-2:]
        return functional.pad(maps, (int(width == 1), 1, int(height == 1), 1))


def _block(before: int, after: int, depth_multiplier: int, halving: bool) -> nn.Sequential:
    """3 × 3 over each channel by itself, then 1 × 1 over all of them."""
    middle = before * depth_multiplier
    stride, padding = (2, 0) if halving else (1, 1)
    return nn.Sequential(
        *([EndPadding()] if halving else []),
        nn.Conv2d(before, middle, 3, stride, padding, groups=before, bias=False),
        normalization(middle),
        nn.ReLU6(),
        nn.Conv2d(middle, after, 1, bias=False),
        normalization(after),
        nn.ReLU6(),
    )
