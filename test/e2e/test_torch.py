# SPDX-License-Identifier: Apache-2.0
"""The same model, weights and batches in PyTorch: the losses of every step agree to 1e-4."""
import os, subprocess

import pytest

from conftest import metrics, run

PYTHON = '/usr/bin/python3'  # Debian's, which has python3-torch


def has_torch():
    return subprocess.run([PYTHON, '-c', 'import torch, numpy'], capture_output=True,
                          env={**os.environ, 'OPENBLAS_CORETYPE': 'SKYLAKEX'}).returncode == 0


REFERENCE = r'''
import math, sys
import numpy as np, torch, torch.nn.functional as F
torch.set_num_threads(1)
L, D, H, T, B, V, STEPS, SEED, LR, WARM, path = 2, 32, 4, 32, 8, 256, int(sys.argv[1]), 3, 3e-3, 2, sys.argv[2]
M = (1 << 64) - 1

def mix(z):
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
    return z ^ (z >> np.uint64(31))

def hash64(seed, stream, index):
    u = np.uint64
    with np.errstate(over='ignore'):
        z = mix(np.asarray(u(seed) + u(0x9e3779b97f4a7c15)))
        z = mix(z ^ (u(stream) + u(0x9e3779b97f4a7c15)))
        return mix(z + (index.astype(u) + u(1)) * u(0x9e3779b97f4a7c15))

def hash_bytes(name):
    h = 0xcbf29ce484222325
    for c in name.encode():
        h = ((h ^ c) * 0x100000001b3) & M
    with np.errstate(over='ignore'):
        return int(mix(np.asarray(np.uint64(h))))

def unit(bits):
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0 ** -53

def normal(name, shape, std):
    i = np.arange(int(np.prod(shape)), dtype=np.uint64)
    u, v = unit(hash64(SEED, hash_bytes(name), i * np.uint64(2))), unit(hash64(SEED, hash_bytes(name), i * np.uint64(2) + np.uint64(1)))
    x = np.sqrt(-2 * np.log(1 - u)) * np.cos(6.283185307179586 * v) * std
    return torch.tensor(x.astype(np.float32).reshape(shape), requires_grad=True)

def permute(epoch, n, i):
    half = 1
    while 1 << 2 * half < n:
        half += 1
    while True:
        left, right = i >> half, i & ((1 << half) - 1)
        for r in range(4):
            h = int(hash64(SEED, epoch * 4 + r, np.asarray(right, dtype=np.uint64)))
            left, right = right, left ^ (h & ((1 << half) - 1))
        i = left << half | right
        if i < n:
            return i

def sample(k, tokens):
    windows = (tokens - T) // T
    epoch, skips = k // windows, tokens - windows * T
    skip = int(hash64(SEED, 0x736b6970, np.asarray(epoch, dtype=np.uint64))) % skips
    return skip + permute(epoch, windows, k % windows) * T

E, std = D // H, 0.02 * math.sqrt(768 / D)
res = std / math.sqrt(2 * L)
P = {'wte': normal('wte', (V, D), std), 'wpe': normal('wpe', (T, 1, D), std / 2), 'head': normal('head', (V, D), std)}
ones = lambda *s: torch.ones(*s, requires_grad=True)
zeros = lambda *s: torch.zeros(*s, requires_grad=True)
for l in range(L):
    n = f'h.{l}.'
    P[n + 'ln1.g'], P[n + 'ln1.b'], P[n + 'ln2.g'], P[n + 'ln2.b'] = ones(D), zeros(D), ones(D), zeros(D)
    P[n + 'attn.wqkv'], P[n + 'attn.bqkv'] = normal(n + 'attn.wqkv', (H, 3, E, D), std), zeros(H, 3, E)
    P[n + 'attn.wo'], P[n + 'attn.bo'] = normal(n + 'attn.wo', (D, H, E), res), zeros(D)
    P[n + 'mlp.w1'], P[n + 'mlp.b1'] = normal(n + 'mlp.w1', (4 * D, D), std), zeros(4 * D)
    P[n + 'mlp.w2'], P[n + 'mlp.b2'] = normal(n + 'mlp.w2', (D, 4 * D), res), zeros(D)
P['ln.g'], P['ln.b'] = ones(D), zeros(D)
matrix = lambda name: name.split('.')[-1].startswith('w') or name in ('wte', 'wpe', 'head')
opt = torch.optim.AdamW([{'params': [p for k, p in P.items() if matrix(k)], 'weight_decay': 0.1},
                         {'params': [p for k, p in P.items() if not matrix(k)], 'weight_decay': 0.0}], lr=LR, betas=(0.9, 0.99), eps=1e-8)
data = np.frombuffer(open(path, 'rb').read(), dtype=np.uint8)
train = int(sys.argv[3])
mask = torch.tril(torch.ones(T, T)).bool()
for step in range(STEPS):
    at = [sample(step * B + j, train) for j in range(B)]
    x = torch.tensor(np.stack([data[a:a + T] for a in at]).astype(np.int64))
    y = torch.tensor(np.stack([data[a + 1:a + 1 + T] for a in at]).astype(np.int64))
    h = P['wte'][x] + P['wpe'].view(1, T, D)
    for l in range(L):
        n = f'h.{l}.'
        a = F.layer_norm(h, (D,), P[n + 'ln1.g'], P[n + 'ln1.b'])
        qkv = (a @ P[n + 'attn.wqkv'].view(-1, D).t() + P[n + 'attn.bqkv'].view(-1)).view(B, T, H, 3, E)
        q, k, v = [qkv[:, :, :, j].transpose(1, 2) for j in range(3)]
        s = (q @ k.transpose(-2, -1) / math.sqrt(E)).masked_fill(~mask, float('-inf'))
        o = (F.softmax(s, -1) @ v).transpose(1, 2).reshape(B, T, D)
        h = h + o @ P[n + 'attn.wo'].view(D, D).t() + P[n + 'attn.bo']
        a = F.layer_norm(h, (D,), P[n + 'ln2.g'], P[n + 'ln2.b'])
        h = h + F.gelu(a @ P[n + 'mlp.w1'].t() + P[n + 'mlp.b1']) @ P[n + 'mlp.w2'].t() + P[n + 'mlp.b2']
    logits = F.layer_norm(h, (D,), P['ln.g'], P['ln.b']) @ P['head'].t()
    loss = F.cross_entropy(logits.reshape(-1, V), y.reshape(-1))
    opt.zero_grad()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(list(P.values()), 1.0)
    falling = STEPS - 1 - WARM
    lr = LR * (step + 1) / WARM if step < WARM else LR * 0.5 * (1 + math.cos(math.pi * min(1.0, (step - WARM) / falling)))
    for group in opt.param_groups:
        group['lr'] = lr
    opt.step()
    print(repr(loss.item()), repr(float(norm)))
'''


@pytest.mark.skipif(not has_torch(), reason='python3-torch is not installed')
@pytest.mark.parametrize('split', [(1, 1, 1), (2, 2, 2)], ids=lambda s: 'x'.join(map(str, s)))
def test_same_losses_as_pytorch(split, tiny, text, tmp_path):
    steps, (t, p, d) = 20, split
    r = run('train', *tiny, '--steps', steps, '--tensor', t, '--pipeline', p, '--data-parallel', d, '--gradient-accumulation', p,
            '--run', tmp_path / 'r', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    script = tmp_path / 'reference.py'
    script.write_text(REFERENCE)
    size = text.stat().st_size
    train = size - int(size * 0.05)
    out = subprocess.run([PYTHON, script, str(steps), text, str(train)], capture_output=True, text=True,
                         env={**os.environ, 'OPENBLAS_CORETYPE': 'SKYLAKEX'})
    assert out.returncode == 0, out.stderr
    theirs = [tuple(map(float, line.split())) for line in out.stdout.splitlines()]
    ours = metrics(tmp_path / 'r')
    assert [row['loss'] for row in ours] == pytest.approx([t[0] for t in theirs], rel=1e-4)
    assert [row['grad_norm'] for row in ours] == pytest.approx([t[1] for t in theirs], rel=1e-3)
