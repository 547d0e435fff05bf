#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make_onnx_corpus — writes small models of the ONNX format for fuzz_onnx to start from.

Usage: test/fuzz/make_onnx_corpus.py [DIR]   (default test/fuzz/corpus/onnx)"""
import pathlib, struct, sys


def varint(n):
    n &= (1 << 64) - 1
    out = b''
    while True:
        out += bytes([(n & 127) | (128 if n > 127 else 0)])
        n >>= 7
        if not n:
            return out


def field(number, v):
    if isinstance(v, int):
        return varint(number << 3) + varint(v)
    if isinstance(v, float):
        return varint(number << 3 | 5) + struct.pack('<f', v)
    v = v.encode() if isinstance(v, str) else v
    return varint(number << 3 | 2) + varint(len(v)) + v


def tensor(name, dims, type_, raw):
    return b''.join(field(1, d) for d in dims) + field(2, type_) + field(8, name) + field(9, raw)


def floats(name, dims, *v):
    return tensor(name, dims, 1, struct.pack(f'<{len(v)}f', *v))


def ints(name, *v):
    return tensor(name, [len(v)], 7, struct.pack(f'<{len(v)}q', *v))


def attr(name, v):
    if isinstance(v, list):
        return field(1, name) + b''.join(field(8, i) for i in v) + field(20, 7)
    if isinstance(v, tuple):                                       # ('graph', bytes)
        return field(1, name) + field(6, v[1]) + field(20, 5)
    number, kind = {int: (3, 2), float: (2, 1), str: (4, 3), bytes: (5, 4)}[type(v)]
    return field(1, name) + field(number, v) + field(20, kind)


def node(op, ins, outs, **attrs):
    return (b''.join(field(1, i) for i in ins.split(',')) + b''.join(field(2, o) for o in outs.split(',')) + field(4, op) +
            b''.join(field(5, attr(k, v)) for k, v in attrs.items()))


def value(name, dims, type_=1):
    shape = b''.join(field(1, field(1, d) if isinstance(d, int) else field(2, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, type_) + field(2, shape)))


def graph(nodes, inputs, outputs, initializers=()):
    return (b''.join(field(1, n) for n in nodes) + field(2, 'g') + b''.join(field(5, t) for t in initializers) +
            b''.join(field(11, i) for i in inputs) + b''.join(field(12, o) for o in outputs))


def model(g, opset=13):
    return field(1, 7) + field(8, field(2, opset)) + field(7, g)


X, Y = value('x', ['N', 4]), value('y', [])
IMAGE = value('x', [1, 2, 5, 5])
BODY = graph([node('Add', 'a,a', 'b'), node('Identity', 'c', 'd')],
             [value('i', [], 7), value('c', [], 9), value('a', ['N', 4])], [value('d', [], 9), value('b', ['N', 4])])
MODELS = {
    'mlp': graph([node('Gemm', 'x,w,b', 'h', transB=1), node('Relu', 'h', 'y')], [X], [Y],
                 [floats('w', [2, 4], *range(8)), floats('b', [2], 1, 2)]),
    'conv': graph([node('Conv', 'x,w', 'h', pads=[1, 1, 1, 1], strides=[2, 2]),
                   node('MaxPool', 'h', 'y', kernel_shape=[2, 2])], [IMAGE], [Y], [floats('w', [1, 2, 3, 3], *range(18))]),
    'pool': graph([node('AveragePool', 'x', 'y', kernel_shape=[3, 3], ceil_mode=1, auto_pad='SAME_UPPER')], [IMAGE], [Y]),
    'transpose': graph([node('ConvTranspose', 'x,w', 'y', output_shape=[9, 9])], [IMAGE], [Y],
                       [floats('w', [2, 1, 3, 3], *range(18))]),
    'shapes': graph([node('Reshape', 'x,s', 'h'), node('Transpose', 'h', 't', perm=[1, 0]), node('Slice', 't,a,b', 'u'),
                     node('Concat', 'u,u', 'y', axis=1)], [X], [Y], [ints('s', 4, -1), ints('a', 0), ints('b', 2)]),
    'norm': graph([node('ReduceMean', 'x', 'm', axes=[1]), node('Sub', 'x,m', 'c'), node('Softmax', 'c', 'y')], [X], [Y]),
    'gather': graph([node('Gather', 'x,i', 'y', axis=1)], [X], [Y], [ints('i', 0, -1)]),
    'loop': graph([node('Loop', 'n,,x', 'y', body=('graph', BODY))], [X], [Y], [ints('n', 3)]),
    'split': graph([node('Split', 'x,s', 'a,b', axis=1), node('Pad', 'a,p', 'y', mode='reflect')], [X], [Y],
                   [ints('s', 3, 1), ints('p', 0, 1, 0, 1)]),
    'resize': graph([node('Resize', 'x,,s', 'y', mode='linear')], [IMAGE], [Y], [floats('s', [4], 1, 1, 2, 2)]),
    'einsum': graph([node('Einsum', 'x,x', 'y', equation='ij,kj->ik')], [X], [Y]),
    'lstm': graph([node('LSTM', 'x,w,r', 'y', hidden_size=2)], [value('x', [3, 1, 2])], [Y],
                  [floats('w', [1, 8, 2], *range(16)), floats('r', [1, 8, 2], *range(16))]),
    'constant': graph([node('Constant', '', 'k', value=floats('', [2], 1, 2)), node('Add', 'x,k', 'y')],
                      [value('x', [2])], [Y]),
    'circle': graph([node('Add', 'x,z', 'y'), node('Relu', 'y', 'z')], [X], [Y]),
    'huge': graph([node('Tile', 'x,r', 'y')], [X], [Y], [ints('r', 1 << 40, 1 << 40)]),
}

out = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent / 'corpus' / 'onnx')
out.mkdir(parents=True, exist_ok=True)
for name, g in MODELS.items():
    (out / f'{name}.onnx').write_bytes(model(g))
