"""Small networks in the patterns of the field's image classifiers, for images 3 x 32 x 32, with weights at random."""

import torch
from torch import nn


def drawn(network, seed=0):
    """Weights of the size that keeps activations near one, and running statistics at random; evaluation mode."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                fan = module.weight[0].numel()
                module.weight.copy_(torch.randn(module.weight.shape, generator=generator) * (2 / fan) ** 0.5)
                if module.bias is not None:
                    module.bias.copy_(0.1 * torch.randn(module.bias.shape, generator=generator))
            elif isinstance(module, nn.BatchNorm2d):
                module.weight.copy_(torch.rand(module.weight.shape, generator=generator) + 0.5)
                module.bias.copy_(0.2 * torch.randn(module.bias.shape, generator=generator))
                module.running_mean.copy_(0.2 * torch.randn(module.bias.shape, generator=generator))
                module.running_var.copy_(torch.rand(module.bias.shape, generator=generator) + 0.5)
    return network.eval()


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3, 1 x 1, and a sum; a projection where sizes change."""

    def __init__(self, inside, width, outside, stride=1):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, outside, 1, bias=False), nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride > 1 or inside != outside:
            self.downsample = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x):
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        identity = x if self.downsample is None else self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    """Stem with overlapping max-pooling, bottlenecks, mean over positions."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 4, 5, 2, 2, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        )
        self.layer1, self.layer2 = Bottleneck(4, 3, 6), Bottleneck(6, 3, 6, stride=2)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(6, 4)

    def forward(self, x):
        return self.fc(torch.flatten(self.avgpool(self.layer2(self.layer1(self.stem(x)))), 1))


class VGG(nn.Module):
    """Convolutions and max-pooling, a mean of 2 x 2 windows of another number, three linear layers with dropout."""

    def __init__(self):
        super().__init__()
        parts, channels = [], 3
        for width in (4, 5, 6):
            parts += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2, 2)]
            channels = width
        self.features, self.avgpool = nn.Sequential(*parts), nn.AdaptiveAvgPool2d((3, 3))
        self.classifier = nn.Sequential(
            nn.Linear(54, 8), nn.ReLU(True), nn.Dropout(), nn.Linear(8, 8), nn.ReLU(True), nn.Dropout(), nn.Linear(8, 4)
        )

    def forward(self, x):
        x = self.avgpool(self.features(x))
        return self.classifier(x.view(x.size(0), -1))


class Dense(nn.Module):
    """Normalise, ReLU, convolve, twice, on all features so far."""

    def __init__(self, inside, growth):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(inside), nn.Conv2d(inside, 2 * growth, 1, bias=False)
        self.norm2, self.conv2 = nn.BatchNorm2d(2 * growth), nn.Conv2d(2 * growth, growth, 3, padding=1, bias=False)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, features):
        x = self.conv1(self.relu(self.norm1(torch.cat(features, 1))))
        return self.conv2(self.relu(self.norm2(x)))


class DenseNet(nn.Module):
    """Two dense blocks and a transition with mean pooling."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.block1 = nn.ModuleList([Dense(4, 2), Dense(6, 2)])
        self.transition = nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 4, 1, bias=False))
        self.pool, self.block2 = nn.AvgPool2d(2, 2), nn.ModuleList([Dense(4, 2)])
        self.norm, self.classifier = nn.BatchNorm2d(6), nn.Linear(6, 4)

    def forward(self, x):
        x = self.first(x)
        for block in (self.block1, self.block2):
            features = [x]
            for layer in block:
                features.append(layer(features))
            x = torch.cat(features, 1)
            if block is self.block1:
                x = self.pool(self.transition(x))
        x = nn.functional.relu(self.norm(x), inplace=True)
        x = nn.functional.adaptive_avg_pool2d(x, (1, 1))
        return self.classifier(torch.flatten(x, 1))


class Fire(nn.Module):
    """A squeeze, and expansions by 1 x 1 and 3 x 3 side by side."""

    def __init__(self, inside, squeeze, expand):
        super().__init__()
        self.squeeze, self.expand1x1 = nn.Conv2d(inside, squeeze, 1), nn.Conv2d(squeeze, expand, 1)
        self.expand3x3, self.act = nn.Conv2d(squeeze, expand, 3, padding=1), nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.act(self.squeeze(x))
        return torch.cat([self.act(self.expand1x1(x)), self.act(self.expand3x3(x))], 1)


class SqueezeNet(nn.Module):
    """Max-pooling in ceil mode, fire modules, a convolution as classifier and ReLU before the mean."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 4, 3, stride=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            Fire(4, 2, 3),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            Fire(6, 2, 3),
        )
        self.classifier = nn.Sequential(
            nn.Dropout(0.5), nn.Conv2d(6, 4, 1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d((1, 1))
        )

    def forward(self, x):
        return torch.flatten(self.classifier(self.features(x)), 1)


class InvertedResidual(nn.Module):
    """Expand, depthwise, project without activation; a sum where sizes agree."""

    def __init__(self, inside, outside, stride, expand):
        super().__init__()
        hidden, self.adds = inside * expand, stride == 1 and inside == outside
        parts = []
        if expand != 1:
            parts += [nn.Conv2d(inside, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True)]
        parts += [
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, outside, 1, bias=False),
            nn.BatchNorm2d(outside),
        ]
        self.conv = nn.Sequential(*parts)

    def forward(self, x):
        return x + self.conv(x) if self.adds else self.conv(x)


class MobileNetV2(nn.Module):
    """Inverted residuals with depthwise convolutions and ReLU6."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU6(inplace=True)),
            InvertedResidual(4, 3, 1, 1),
            InvertedResidual(3, 4, 2, 2),
            InvertedResidual(4, 4, 1, 2),
            nn.Sequential(nn.Conv2d(4, 6, 1, bias=False), nn.BatchNorm2d(6), nn.ReLU6(inplace=True)),
        )
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(6, 4))

    def forward(self, x):
        return self.classifier(nn.functional.adaptive_avg_pool2d(self.features(x), (1, 1)).reshape(x.shape[0], -1))


PATTERNS = [ResNet, VGG, DenseNet, SqueezeNet, MobileNetV2]
