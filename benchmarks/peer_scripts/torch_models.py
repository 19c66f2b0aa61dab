"""The models of benchmarks.models in PyTorch, of the modules that Opacus has rules for."""

import torch
from opacus.layers import DPLSTM
from torch import nn
from torch.nn import functional


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, memory, causal):
        def split(values):
            return values.unflatten(-1, (self.heads, -1)).transpose(1, 2)

        parts = split(self.query(x)), split(self.key(memory)), split(self.value(memory))
        found = functional.scaled_dot_product_attention(*parts, is_causal=causal)
        return self.out(found.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width, heads, causal=False, cross=False):
        super().__init__()
        self.causal = causal
        self.before_own, self.own = nn.LayerNorm(width), Attention(width, heads)
        if cross:
            self.before_cross, self.cross = nn.LayerNorm(width), Attention(width, heads)
        self.before, self.up, self.down = (
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        )  # fmt: skip

    def forward(self, x, memory=None):
        y = self.before_own(x)
        x = x + self.own(y, y, self.causal)
        if memory is not None:
            x = x + self.cross(self.before_cross(x), memory, False)
        return x + self.down(functional.gelu(self.up(self.before(x))))


class Positions(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        self.table = nn.Embedding(length, width)

    def forward(self, x):  # ids of every example: ghost mode fails on expanded ones
        return x + self.table(torch.arange(x.shape[1]).repeat(len(x), 1))


class VisionTransformer(nn.Module):
    def __init__(self, side, patch, width, depth, heads):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.positions = Positions((side // patch) ** 2, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)

    def forward(self, images):
        x = self.positions(self.patches(images).flatten(2).transpose(1, 2))
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.head = VisionTransformer(224, 16, 192, 12, 3), nn.Linear(192, 1000)

    def forward(self, images):
        return self.head(self.encoder(images).mean(1))


class Captioner(nn.Module):
    def __init__(self, side, width, depth, heads, decoder_depth, length, vocabulary):
        super().__init__()
        self.encoder = VisionTransformer(side, 8, width, depth, heads)
        self.table, self.positions = nn.Embedding(vocabulary, width), Positions(length, width)
        self.blocks = nn.ModuleList(
            Block(width, heads, causal=True, cross=True) for _ in range(decoder_depth)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, images, ids):
        memory, x = self.encoder(images), self.positions(self.table(ids))
        for block in self.blocks:
            x = block(x, memory)
        return self.head(self.norm(x))


class Residual(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        self.first = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList(nn.GroupNorm(16, width) for _ in range(2))
        narrow = stride == 1 and before == width
        self.short = nn.Identity() if narrow else nn.Conv2d(before, width, 1, stride, bias=False)

    def forward(self, x):
        y = self.norms[0](self.first(x)).relu()
        return (self.short(x) + self.norms[1](self.second(y))).relu()


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.GroupNorm(16, 64)
        sizes = (
            (64, 64, 1),
            (64, 64, 1),
            (64, 128, 2),
            (128, 128, 1),
            (128, 256, 2),
            (256, 256, 1),
        )
        self.blocks, self.head = nn.Sequential(*(Residual(*s) for s in sizes)), nn.Linear(256, 10)

    def forward(self, images):
        x = self.blocks(self.norm(self.stem(images)).relu())
        return self.head(x.mean((2, 3)))


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(8000, 128), nn.Linear(128, 20)
        self.layers = nn.ModuleList(DPLSTM(128, 128, batch_first=True) for _ in range(2))

    def forward(self, ids):
        x = self.table(ids)
        for layer in self.layers:
            x = layer(x)[0]
        return self.head(x)


def _captioner(rows, side, length, vocabulary, width, depth, heads, decoder_depth):
    ids = torch.randint(1, vocabulary, (rows, length + 1))
    model = Captioner(side, width, depth, heads, decoder_depth, length, vocabulary)
    return (
        model,
        (torch.randn(rows, 3, side, side), ids[:, :-1].contiguous()),
        ids[:, 1:].contiguous(),
    )


def _images(model, rows, side, classes):
    return model, (torch.randn(rows, 3, side, side),), torch.randint(0, classes, (rows, 1))


# From rows to (model, inputs, targets). A tied table is no module of Opacus: no language model.
MODELS = {
    "captioner": lambda rows: _captioner(rows, 64, 40, 4096, 192, 6, 3, 3),
    "quickstart": lambda rows: _captioner(rows, 32, 11, 3041, 64, 3, 4, 2),
    "vit": lambda rows: _images(Classifier(), rows, 224, 1000),
    "convnet": lambda rows: _images(ConvNet(), rows, 32, 10),
    "lstm": lambda rows: (
        Tagger(), (torch.randint(1, 8000, (rows, 64)),), torch.randint(0, 20, (rows, 64))
    ),
}  # fmt: skip
