# SPDX-License-Identifier: Apache-2.0
"""A training step of BERT or ResNet in PyTorch on the CPU, on request.

Usage: peer_model.py bert-base|resnet50 BATCH [RANK WORLD FILE]
Reads a number of steps per line, does them, answers with their seconds and the loss. One process of one thread.

The same work as the presets of these names: BERT with learned positions and segments, post-norm blocks, exact GELU, no
padding, no dropout, words at all places decoded by the tied table; ResNet-50 on 224² images, channels last, batch norm
trained and tracked; AdamW, one fixed batch."""
import os, sys, time

os.environ['OMP_NUM_THREADS'] = '1'
try:                                    # OpenBLAS before 0.3.22 takes recent Xeons for something slow
    if 'avx512f' in open('/proc/cpuinfo').read():
        os.environ.setdefault('OPENBLAS_CORETYPE', 'SKYLAKEX')
except OSError:
    pass

import torch
from torch import nn
from torch.nn import functional

torch.set_num_threads(1)
name, batch = sys.argv[1], int(sys.argv[2])
HIDDEN, HEADS, SEQUENCE, VOCAB, LAYERS = 768, 12, 128, 30522, 12


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN, 1e-12), nn.LayerNorm(HIDDEN, 1e-12)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
        self.up, self.down = nn.Linear(HIDDEN, 4 * HIDDEN), nn.Linear(4 * HIDDEN, HIDDEN)
        self.register_buffer('zero', torch.zeros(1), persistent=False)

    def attend(self, x):
        n, t, d = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4).reshape(3, n * HEADS, t, -1).unbind(0)
        score = torch.baddbmm(self.zero, q, k.transpose(1, 2), beta=0, alpha=(d // HEADS) ** -0.5)
        mixed = torch.bmm(score.softmax(-1), v)
        return self.out(mixed.view(n, HEADS, t, -1).transpose(1, 2).reshape(n, t, d))

    def forward(self, x):
        x = self.norm1(x + self.attend(x))
        return self.norm2(x + self.down(functional.gelu(self.up(x))))


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, HIDDEN), nn.Embedding(SEQUENCE, HIDDEN)
        self.segments, self.norm = nn.Embedding(2, HIDDEN), nn.LayerNorm(HIDDEN, 1e-12)
        self.stack = nn.Sequential(*(Encoder() for _ in range(LAYERS)))
        self.dense, self.norm2 = nn.Linear(HIDDEN, HIDDEN), nn.LayerNorm(HIDDEN, 1e-12)
        self.bias = nn.Parameter(torch.zeros(VOCAB))

    def forward(self, ids):
        x = self.norm(self.words(ids) + self.places.weight + self.segments(torch.zeros_like(ids)))
        x = self.norm2(functional.gelu(self.dense(self.stack(x))))
        return functional.linear(x, self.words.weight, self.bias).view(-1, VOCAB)


def unit(inputs, features, size, stride):
    return nn.Sequential(nn.Conv2d(inputs, features, size, stride, size // 2, bias=False), nn.BatchNorm2d(features))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.one, self.two = unit(inputs, width, 1, 1), unit(width, width, 3, stride)
        self.three = unit(width, 4 * width, 1, 1)
        self.skip = unit(inputs, 4 * width, 1, stride) if stride > 1 or inputs != 4 * width else nn.Identity()

    def forward(self, x):
        y = functional.relu(self.two(functional.relu(self.one(x), inplace=True)), inplace=True)
        return functional.relu(self.three(y).add_(self.skip(x)), inplace=True)


def resnet50():
    layers, inputs = [unit(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for i in range(blocks):
            layers.append(Bottleneck(inputs, 64 << stage, 2 if stage and not i else 1))
            inputs = 256 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


torch.manual_seed(0)
if name == 'bert-base':
    model = Bert()
    for table in (model.words, model.places, model.segments):
        nn.init.normal_(table.weight, std=0.02)
    given, labels = torch.randint(VOCAB, (2, batch, SEQUENCE))
else:
    model = resnet50().to(memory_format=torch.channels_last)
    given = torch.randn(batch, 3, 224, 224).to(memory_format=torch.channels_last)
    labels = torch.randint(1000, (batch,))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)


def step():
    loss = functional.cross_entropy(model(given), labels.view(-1))
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.item()


for line in sys.stdin:
    start = time.perf_counter()
    for _ in range(int(line)):
        loss = step()
    print(f'{time.perf_counter() - start:.6f} {loss:.4f}', flush=True)
