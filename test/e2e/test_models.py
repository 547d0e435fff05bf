# SPDX-License-Identifier: Apache-2.0
"""A step of each model family in PyTorch from the same weights and inputs: loss, logits, every gradient and the
running statistics agree."""
import os, pathlib, subprocess

import pytest

from conftest import SUPERNODE

PYTHON = '/usr/bin/python3'  # Debian's, which has python3-torch
STEP = pathlib.Path(SUPERNODE).parent / 'test' / 'model' / 'test_model_step'
QUIET = {**os.environ, 'OPENBLAS_CORETYPE': 'SKYLAKEX'}


def has_torch():
    return subprocess.run([PYTHON, '-c', 'import torch, numpy'], capture_output=True, env=QUIET).returncode == 0


REFERENCE = r'''
import math, sys
import numpy as np, torch, torch.nn.functional as F
torch.set_num_threads(1)
model, path = sys.argv[1:]
TYPES = {'F32': np.float32, 'I32': np.int32}
kinds = {}
with open(path, 'rb') as f:
    while line := f.readline():
        kind, name, dtype, dims = line.decode().rstrip('\n').split(' ')
        shape = [int(d) for d in dims.split(',')] if dims else []
        x = np.frombuffer(f.read(4 * int(np.prod(shape))), dtype=TYPES[dtype]).reshape(shape).copy()
        kinds.setdefault(kind, {})[name] = x
# in double, so that what differs is ours
P = {k: torch.tensor(v.astype(np.float64), requires_grad=True) for k, v in kinds['param'].items()}
S = {k: torch.tensor(v.astype(np.float64)) for k, v in kinds.get('state', {}).items()}
I = {k: torch.tensor(v.astype(np.float64 if v.dtype == np.float32 else np.int64)) for k, v in kinds['input'].items()}

def linear(x, w, b=None, k=1):
    """x[..., K...] w[N..., K...] -> [..., N...]"""
    n = w.dim() - k
    y = torch.tensordot(x, w, dims=(list(range(x.dim() - k, x.dim())), list(range(n, w.dim()))))
    return y if b is None else y + b

def conv(x, name, stride, pad):
    return F.conv2d(x, P[name + '.w'].permute(0, 3, 1, 2), stride=stride, padding=pad)

def norm(x, name, relu=False, residual=None):
    y = F.batch_norm(x, S[name + '.mean'], S[name + '.var'], P[name + '.g'], P[name + '.b'], training=True, momentum=0.1, eps=1e-5)
    y = y if residual is None else y + residual
    return F.relu(y) if relu else y

def resnet():
    x = I['images'].permute(0, 3, 1, 2)
    x = F.max_pool2d(norm(conv(x, 'conv1', 2, 3), 'bn1', True), 3, 2, 1)
    for s in range(4):
        n, stride = f'layer{s + 1}.0.', 2 if s else 1
        skip = norm(conv(x, n + 'downsample.0', stride, 0), n + 'downsample.1') if n + 'downsample.0.w' in P else x
        y = norm(conv(x, n + 'conv1', stride, 1), n + 'bn1', True)
        x = norm(conv(y, n + 'conv2', 1, 1), n + 'bn2', True, skip)
    return linear(x.mean((2, 3)), P['fc.w'], P['fc.b'])

def cnn():
    x = I['images'].permute(0, 3, 1, 2)
    for s in range(2):
        x = F.max_pool2d(norm(conv(x, f'stage{s}.conv', 1, 1), f'stage{s}.bn', True), 2)
    x = F.relu(linear(x.permute(0, 2, 3, 1), P['fc.w'], P['fc.b'], 3))
    return linear(x, P['out.w'], P['out.b'])

def mlp():
    x = I['x']
    for l in range(2):
        x = F.relu(linear(x, P[f'fc{l}.w'], P[f'fc{l}.b']))
    return linear(x, P['out.w'], P['out.b'])

def attend(q, k, v, keep):
    """q[T,B,G,R,E] k,v[S,B,G,E] keep[B,T,S]"""
    s = torch.einsum('tbgre,sbge->bgrts', q, k) / math.sqrt(q.shape[-1])
    p = F.softmax(s.masked_fill(~keep[:, None, None], float('-inf')), -1)
    return torch.einsum('bgrts,sbge->tbgre', p, v)

def layer_norm(x, name, eps):
    return F.layer_norm(x, x.shape[-1:], P[name + '.g'], P[name + '.b'], eps)

def bert():
    T, B = I['ids'].shape
    x = layer_norm(P['wte'][I['ids']] + P['wpe'] + P['wse'][I['segments']], 'ln', 1e-12)
    keep = (I['mask'] != 0).t()[:, None, :].expand(B, T, T)
    for l in range(2):
        n = f'h.{l}.'
        q, k, v = [linear(x, P[f'{n}attn.w{c}'], P[f'{n}attn.b{c}']) for c in 'qkv']
        x = layer_norm(x + linear(attend(q, k, v, keep), P[n + 'attn.wo'], P[n + 'attn.bo'], 3), n + 'ln1', 1e-12)
        u = F.gelu(linear(x, P[n + 'mlp.w1'], P[n + 'mlp.b1']))
        x = layer_norm(x + linear(u, P[n + 'mlp.w2'], P[n + 'mlp.b2']), n + 'ln2', 1e-12)
    x = layer_norm(F.gelu(linear(x, P['cls.w'], P['cls.b'])), 'cls.ln', 1e-12)
    return linear(x, P['wte'], P['cls.bias'])

def rms(x, name):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * P[name + '.g']

def turn(x):
    """halves of the last dim, as in Llama's rotate_half"""
    T, E = x.shape[0], x.shape[-1]
    angle = torch.outer(torch.arange(T, dtype=torch.float64), 10000.0 ** (-torch.arange(0, E, 2, dtype=torch.float64) / E))
    angle = torch.cat([angle, angle], -1).view(T, *[1] * (x.dim() - 2), E)
    a, b = x.chunk(2, -1)
    return x * angle.cos() + torch.cat([-b, a], -1) * angle.sin()

def llama():
    T, B = I['ids'].shape
    x = P['wte'][I['ids']]
    keep = torch.tril(torch.ones(T, T)).bool().expand(B, T, T)
    for l in range(2):
        n = f'h.{l}.'
        a = rms(x, n + 'ln1')
        q, k, v = [linear(a, P[f'{n}attn.w{c}']) for c in 'qkv']
        x = x + linear(attend(turn(q), turn(k), v, keep), P[n + 'attn.wo'], None, 3)
        u = linear(rms(x, n + 'ln2'), P[n + 'mlp.w1'])
        x = x + linear(F.silu(u[..., 0, :]) * u[..., 1, :], P[n + 'mlp.w2'])
    return linear(rms(x, 'ln'), P['head'])

build = {'resnet-tiny': resnet, 'cnn-tiny': cnn, 'mlp-tiny': mlp, 'bert-tiny': bert, 'llama-tiny': llama}
logits = build[model]()
target = I['targets'] if 'targets' in I else I['labels']
loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), target.reshape(-1), ignore_index=-1, reduction='sum') / target.numel()
loss.backward()

def differs(what, ours, theirs, bar):
    theirs = theirs.detach().numpy()
    far = np.abs(ours - theirs).max() / max(np.sqrt((theirs ** 2).mean()), 1e-12)
    if not far <= bar:
        print(f'{what}: differs by {far:.3g} of its size')

differs('loss', kinds['loss']['loss'], loss, 1e-5)
differs('logits', kinds['logits']['logits'], logits, 1e-4)
for name, ours in kinds.get('next', {}).items():
    differs(f'running {name}', ours, S[name], 1e-4)
for name in P:
    if '.bk' in name:  # a bias of the keys shifts all scores alike: its gradient is nothing but rounding
        assert np.abs(kinds['grad'][name]).max() < 1e-6 and P[name].grad.abs().max() < 1e-6
    else:
        differs(f'gradient of {name}', kinds['grad'][name], P[name].grad, 1e-3)
print(len(P), 'gradients')
'''


@pytest.mark.skipif(not has_torch(), reason='python3-torch is not installed')
@pytest.mark.parametrize('card', ['ref', 'cpu'])
@pytest.mark.parametrize('model', ['resnet-tiny', 'cnn-tiny', 'mlp-tiny', 'bert-tiny', 'llama-tiny'])
def test_same_gradients_as_pytorch(model, card, tmp_path):
    script, values = tmp_path / 'reference.py', tmp_path / 'values'
    script.write_text(REFERENCE)
    step = subprocess.run([STEP, model, '4', card, values], capture_output=True, text=True, timeout=60)
    assert step.returncode == 0, step.stderr
    out = subprocess.run([PYTHON, script, model, values], capture_output=True, text=True, timeout=120, env=QUIET)
    assert out.returncode == 0, out.stderr
    lines = out.stdout.splitlines()
    assert lines[:-1] == [] and lines[-1].endswith('gradients')
