"""Layers and initialisers as in Keras, where they differ from torch: padding, batch norm, kernels."""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional

TRUNCATED = 0.87962566103423978  # standard deviation of a standard normal distribution truncated at ±2


class SameConv2d(nn.Conv2d):
    """A 1 × 1 or 3 × 3 convolution with padding "same": (b, before, h, w) → (b, after, ⌈h / stride⌉, ⌈w / stride⌉).

    torch pads both sides equally. At stride 2 an even size needs only one zero, which Keras puts at the end.
    """

    def __init__(self, before: int, after: int, size: int, stride: int = 1, bias: bool = True) -> None:
        super().__init__(before, after, size, stride, padding=size // 2 if stride == 1 else 0, bias=bias)

    def forward(self, inputs: Tensor) -> Tensor:
        if self.kernel_size[0] > 1 and self.stride[0] > 1:
            height, width = inputs.shape[-2:]
            inputs = functional.pad(inputs, (width % 2, 1, height % 2, 1))
        return super().forward(inputs)


def normalization(channels: int) -> nn.BatchNorm2d:
    """Batch norm with Keras' constants; Keras' momentum 0.99 weighs the old average, torch's 0.01 the new batch."""
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


def glorot_uniform(convolution: nn.Conv2d) -> None:
    """Initialise a kernel uniformly within ±√(6 / (fan in + fan out)).

    For a depthwise kernel Keras' fan in counts all input channels, its fan out the output channels of a single one.
    """
    pixels = math.prod(convolution.kernel_size)
    fans = pixels * (convolution.in_channels + convolution.out_channels // convolution.groups)
    bound = math.sqrt(6 / fans)
    nn.init.uniform_(convolution.weight, -bound, bound)


def he_normal(weight: Tensor) -> None:
    """Initialise weights (after, …) from a normal distribution truncated at two deviations, with variance 2 / fan in."""
    deviation = math.sqrt(2 / weight[0].numel()) / TRUNCATED
    nn.init.trunc_normal_(weight, std=deviation, a=-2 * deviation, b=2 * deviation)
