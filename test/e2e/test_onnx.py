# SPDX-License-Identifier: Apache-2.0
"""ONNX: every model of Debian's test data, models that PyTorch exported trained beside it, files that lie."""
import os, pathlib, re, subprocess

import pytest

from conftest import run
from test_torch import PYTHON, has_torch

DATA = pathlib.Path('/usr/share/libonnx-testdata/data')


@pytest.mark.skipif(not DATA.exists(), reason='libonnx-testdata is not installed')
def test_conformance():
    p = run('onnx', 'conformance', DATA, '--failures', timeout=300)
    assert p.returncode == 0, p.stdout
    passed, failed, unsupported = map(int, re.search(r'(\d+) passed, (\d+) failed, (\d+) unsupported', p.stdout).groups())
    share = float(re.search(r'node tests: .* pass \(([\d.]+) %\)', p.stdout)[1])
    assert failed == 0 and passed >= 989 and unsupported <= 7 and share >= 85


def test_refusals(tmp_path):
    bad = tmp_path / 'bad.onnx'
    for content, word in ((b'', 'no graph'), (b'\x0a', 'cut off'), (b'not a model at all', 'no ONNX file')):
        bad.write_bytes(content)
        p = run('onnx', 'check', bad)
        assert p.returncode not in (0, -6, -11) and (word in p.stderr or 'ONNX' in p.stderr or 'empty' in p.stderr), p.stderr
    assert 'check MODEL.onnx' in run('onnx').stderr
    assert run('onnx', 'conformance', tmp_path).returncode != 0


PEER = r'''
import sys, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); torch.set_num_threads(1)
out, kind, lr = sys.argv[1], sys.argv[2], float(sys.argv[3])

def varint(n):
    b = b''
    while True:
        b += bytes([(n & 127) | (128 if n > 127 else 0)]); n >>= 7
        if not n: return b

def tensor(a):
    head = b''.join(b'\x08' + varint(d) for d in a.shape)
    return head + b'\x10' + varint({'float32': 1, 'int64': 7}[str(a.dtype)]) + b'\x4a' + varint(a.nbytes) + a.tobytes()

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.pos = nn.Embedding(50, 32), nn.Parameter(torch.randn(12, 1, 32) * .1)
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, activation='gelu'), 2)
        self.head = nn.Linear(32, 50)
    def forward(self, x):
        return self.head(self.enc(self.emb(x) + self.pos))

class Block(nn.Module):
    def __init__(self, i, m, o, stride):
        super().__init__()
        self.c = nn.ModuleList([nn.Conv2d(i, m, 1, bias=False), nn.Conv2d(m, m, 3, stride, 1, bias=False),
                                nn.Conv2d(m, o, 1, bias=False)])
        self.b = nn.ModuleList([nn.BatchNorm2d(m), nn.BatchNorm2d(m), nn.BatchNorm2d(o)])
        self.d = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if stride != 1 or i != o else nn.Identity()
    def forward(self, x):
        y = F.relu(self.b[0](self.c[0](x)))
        y = F.relu(self.b[1](self.c[1](y)))
        return F.relu(self.b[2](self.c[2](y)) + self.d(x))

class Residual(nn.Module):
    """The shape of ResNet-50: bottlenecks, batch norm, a strided stem; narrower and shallower."""
    def __init__(self, width=8, depth=(1, 2, 1)):
        super().__init__()
        self.c, self.b = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        blocks, i = [], width
        for stage, n in enumerate(depth):
            for j in range(n):
                m = width << stage
                blocks.append(Block(i, m, 4 * m, 2 if j == 0 and stage else 1)); i = 4 * m
        self.blocks, self.f = nn.Sequential(*blocks), nn.Linear(i, 10)
    def forward(self, x):
        x = self.blocks(F.max_pool2d(F.relu(self.b(self.c(x))), 3, 2, 1))
        return self.f(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))

if kind == 'encoder':
    m, x, t = Encoder(), torch.randint(0, 50, (12, 4)), torch.randint(0, 50, (12, 4))
else:
    m, x, t = Residual(), torch.randn(8, 3, 32, 32), torch.randint(0, 10, (8,))
m.train()
torch.onnx.export(m, x, out + '/model.onnx', training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, opset_version=14)
open(out + '/input_0.pb', 'wb').write(tensor(x.numpy()))
open(out + '/output_0.pb', 'wb').write(tensor(t.numpy()))
o = torch.optim.SGD(m.parameters(), lr)
for step in range(20):
    o.zero_grad()
    y = m(x)
    loss = F.cross_entropy(y.reshape(-1, y.shape[-1]), t.reshape(-1))
    loss.backward()
    o.step()
    print('step', step, 'loss', '%.7g' % loss.item())
'''


def losses(text):
    return [float(v) for v in re.findall(r'step \d+ loss (\S+)', text)]


@pytest.mark.parametrize('kind,lr', [('encoder', 0.1), ('residual', 0.002)])
def test_trains_as_torch_does(tmp_path, kind, lr):
    if not has_torch():
        pytest.skip('no PyTorch here')
    peer = subprocess.run([PYTHON, '-c', PEER, str(tmp_path), kind, str(lr)], capture_output=True, text=True, timeout=120,
                          env={**os.environ, 'OPENBLAS_CORETYPE': 'SKYLAKEX'})
    want = losses(peer.stdout)
    assert len(want) == 20, peer.stderr
    ours = run('onnx', 'train', tmp_path / 'model.onnx', '--run-test', tmp_path, '--lr', lr, '--steps', 20)
    got = losses(ours.stdout)
    assert len(got) == 20, ours.stderr
    assert want[-1] < want[0] - 0.1
    assert max(abs(a - b) for a, b in zip(got, want)) < 1e-3, list(zip(got, want))
