# SPDX-License-Identifier: Apache-2.0
"""A GPT training step in PyTorch on the CPU, on request.

Usage: peer_gpt.py LAYERS HIDDEN HEADS SEQUENCE BATCH VOCAB [RANK WORLD FILE]
Reads a number of steps per line, does them, answers with their seconds and the loss. One thread. With
RANK, WORLD and FILE (a path where the ranks meet) it is one of several DistributedDataParallel processes.

The same model as `supernode bench train`: learned positions, pre-norm blocks, exact GELU, an untied head
without bias, AdamW, one fixed batch. Choices that make it as fast as this PyTorch gets are taken."""
import os, sys, time

os.environ['OMP_NUM_THREADS'] = '1'
try:                                    # OpenBLAS before 0.3.22 takes recent Xeons for something slow
    if 'avx512f' in open('/proc/cpuinfo').read():
        os.environ.setdefault('OPENBLAS_CORETYPE', 'SKYLAKEX')
except OSError:
    pass
os.environ.setdefault('GLOO_SOCKET_IFNAME', 'lo')

import torch
from torch import nn
from torch.nn import functional

torch.set_num_threads(1)
layers, hidden, heads, sequence, batch, vocab = map(int, sys.argv[1:7])
rank, world = (int(sys.argv[7]), int(sys.argv[8])) if len(sys.argv) > 9 else (0, 1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.scale = (hidden // heads) ** -0.5

    def attend(self, x, mask):
        n, t, _ = x.shape
        q, k, v = self.qkv(x).view(n, t, 3, heads, -1).permute(2, 0, 3, 1, 4).reshape(3, n * heads, t, -1).unbind(0)
        score = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=self.scale)      # mask and scale in one pass
        mixed = torch.bmm(score.softmax(-1), v)
        return self.out(mixed.view(n, heads, t, -1).transpose(1, 2).reshape(n, t, hidden))

    def forward(self, x, mask):
        x = x + self.attend(self.norm1(x), mask)
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, hidden), nn.Embedding(sequence, hidden)
        self.stack = nn.ModuleList(Layer() for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, vocab, bias=False)
        self.register_buffer('mask', torch.full((1, sequence, sequence), float('-inf')).triu(1), persistent=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.places.weight
        for layer in self.stack:
            x = layer(x, self.mask)
        return self.head(self.norm(x))


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
if world > 1:
    torch.distributed.init_process_group('gloo', init_method=f'file://{sys.argv[9]}', rank=rank, world_size=world)
    model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, broadcast_buffers=False)
torch.manual_seed(rank)
ids, targets = torch.randint(vocab, (2, batch, sequence))


def step():
    loss = functional.cross_entropy(model(ids).view(-1, vocab), targets.view(-1))
    optimizer.zero_grad(set_to_none=world == 1)
    loss.backward()
    optimizer.step()
    return loss.item()


for line in sys.stdin:
    start = time.perf_counter()
    for _ in range(int(line)):
        loss = step()
    print(f'{time.perf_counter() - start:.6f} {loss:.4f}', flush=True)
