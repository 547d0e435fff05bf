# SPDX-License-Identifier: Apache-2.0
"""GPT-2 folders as transformers writes them: begun with, trained, handed back; against GPT-2 in plain torch."""
import importlib.util, json, math, pathlib, struct

import pytest

from conftest import events, run

torch = pytest.importorskip('torch', reason='python3-torch is not installed')
L, D, H, T, V = 2, 32, 4, 24, 256


# ---- the files ----

def save_file(path, tensors, half=()):
    head, data, at = {'__metadata__': {'format': 'pt'}}, [], 0
    for name, t in tensors.items():
        kind = 'F16' if name in half else 'F32'
        raw = t.contiguous().to(torch.float16 if name in half else torch.float32).numpy().tobytes()
        head[name] = {'dtype': kind, 'shape': list(t.shape), 'data_offsets': [at, at + len(raw)]}
        data.append(raw)
        at += len(raw)
    text = json.dumps(head).encode()
    text += b' ' * (-len(text) % 8)
    path.write_bytes(struct.pack('<Q', len(text)) + text + b''.join(data))


def load_file(path):
    raw = path.read_bytes()
    n = struct.unpack('<Q', raw[:8])[0]
    out = {}
    for name, e in json.loads(raw[8:8 + n]).items():
        if name != '__metadata__':
            a, b = e['data_offsets']
            assert e['dtype'] == 'F32'
            out[name] = torch.frombuffer(bytearray(raw[8 + n + a:8 + n + b]), dtype=torch.float32).reshape(e['shape'])
    return out


def weights(seed=1, prefix='transformer.', head=False):
    g = torch.Generator().manual_seed(seed)

    def draw(*shape, std=0.12):
        return torch.randn(*shape, generator=g) * std

    w = {f'{prefix}wte.weight': draw(V, D, std=0.3), f'{prefix}wpe.weight': draw(T, D)}
    for i in range(L):
        p = f'{prefix}h.{i}.'
        w |= {p + 'ln_1.weight': 1 + draw(D), p + 'ln_1.bias': draw(D), p + 'ln_2.weight': 1 + draw(D), p + 'ln_2.bias': draw(D),
              p + 'attn.c_attn.weight': draw(D, 3 * D), p + 'attn.c_attn.bias': draw(3 * D),
              p + 'attn.c_proj.weight': draw(D, D), p + 'attn.c_proj.bias': draw(D),
              p + 'mlp.c_fc.weight': draw(D, 4 * D), p + 'mlp.c_fc.bias': draw(4 * D),
              p + 'mlp.c_proj.weight': draw(4 * D, D), p + 'mlp.c_proj.bias': draw(D)}
    w |= {f'{prefix}ln_f.weight': 1 + draw(D), f'{prefix}ln_f.bias': draw(D)}
    if head:
        w['lm_head.weight'] = draw(V, D, std=0.3)
    return w


def folder(path, w, act='gelu_new', tied=True, half=(), **more):
    path.mkdir()
    config = {'model_type': 'gpt2', 'n_layer': L, 'n_embd': D, 'n_head': H, 'n_positions': T, 'vocab_size': V, 'n_inner': None,
              'activation_function': act, 'layer_norm_epsilon': 1e-5, 'tie_word_embeddings': tied, **more}
    (path / 'config.json').write_text(json.dumps(config))
    save_file(path / 'model.safetensors', w, half)
    return path


# ---- the model, as published, in double precision ----

def logits(w, ids, act):
    F = torch.nn.functional
    w = {k.removeprefix('transformer.'): v.double() for k, v in w.items()}
    x = w['wte.weight'][ids] + w['wpe.weight'][:ids.shape[1]]
    mask = torch.tril(torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool))

    def norm(x, name):
        return F.layer_norm(x, (D,), w[name + '.weight'], w[name + '.bias'], 1e-5)

    for i in range(L):
        p = f'h.{i}.'
        qkv = norm(x, p + 'ln_1') @ w[p + 'attn.c_attn.weight'] + w[p + 'attn.c_attn.bias']
        q, k, v = (t.reshape(*t.shape[:2], H, D // H).transpose(1, 2) for t in qkv.split(D, dim=2))
        a = (q @ k.transpose(2, 3) / math.sqrt(D // H)).masked_fill(~mask, -math.inf).softmax(-1) @ v
        x = x + a.transpose(1, 2).reshape(x.shape) @ w[p + 'attn.c_proj.weight'] + w[p + 'attn.c_proj.bias']
        u = norm(x, p + 'ln_2') @ w[p + 'mlp.c_fc.weight'] + w[p + 'mlp.c_fc.bias']
        u = 0.5 * u * (1 + torch.tanh(math.sqrt(2 / math.pi) * (u + 0.044715 * u ** 3))) if act == 'gelu_new' else F.gelu(u)
        x = x + u @ w[p + 'mlp.c_proj.weight'] + w[p + 'mlp.c_proj.bias']
    return norm(x, 'ln_f') @ w.get('lm_head.weight', w['wte.weight']).T


def held_out_loss(w, act, text, sequence=T):
    """nats per byte, each held-out byte but the first predicted once"""
    data = text.read_bytes()
    held = torch.tensor(list(data[len(data) - int(len(data) * 0.05):]))
    whole = (len(held) - 1) // sequence * sequence
    parts = [(held[:whole].reshape(-1, sequence), held[1:whole + 1].reshape(-1, sequence))]
    if whole < len(held) - 1:
        parts.append((held[whole:-1][None], held[whole + 1:][None]))
    total = sum(torch.nn.functional.cross_entropy(logits(w, x, act).flatten(0, 1), y.flatten(), reduction='sum').item() for x, y in parts)
    return total / (len(held) - 1)


def train(init, text, tmp_path, *args, name='r'):
    r = run('train', '--init', init, '--data', text, '--batch-size', '4', '--run', tmp_path / name, '--json', *args, cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    return events(r.stdout)[-1]


def export(tmp_path, name='r'):
    r = run('export', tmp_path / name, '--to', tmp_path / f'{name}.out')
    assert r.returncode == 0, r.stderr
    return load_file(tmp_path / f'{name}.out' / 'model.safetensors')


STILL = ['--steps', '1', '--lr', '0', '--lr-min', '0']


@pytest.mark.parametrize('act, tied', [('gelu_new', True), ('gelu', False), ('gelu', True)])
def test_same_loss_and_same_weights_back(tmp_path, text, act, tied):
    w = weights(head=not tied)
    there = folder(tmp_path / 'gpt2', w, act, tied)
    said = train(there, text, tmp_path, *STILL)
    assert said['validation_loss'] == pytest.approx(held_out_loss(w, act, text), rel=1e-5)
    back = export(tmp_path)
    assert back.keys() == w.keys()
    for name in w:
        assert torch.equal(back[name], w[name]), name
    config = json.loads((tmp_path / 'r.out' / 'config.json').read_text())
    assert (config['activation_function'], config['tie_word_embeddings'], config['n_inner']) == (act, tied, 4 * D)


@pytest.mark.parametrize('split', [[], ['--tensor', '2'], ['--data-parallel', '2', '--hosts', '2']])
def test_trained_and_handed_back(tmp_path, text, split):
    there = folder(tmp_path / 'gpt2', weights(), 'gelu_new')
    said = train(there, text, tmp_path, '--steps', '30', '--lr', '3e-3', *split)
    w = export(tmp_path)
    trained = held_out_loss(w, 'gelu_new', text)
    assert said['validation_loss'] == pytest.approx(trained, rel=1e-4)
    assert trained < held_out_loss(weights(), 'gelu_new', text) - 0.5
    again = train(tmp_path / 'r.out', text, tmp_path, *STILL, name='again')
    assert again['validation_loss'] == pytest.approx(trained, rel=1e-5)


def test_old_names_half_precision_and_a_shorter_context(tmp_path, text):
    """The first published file has no prefix and buffers beside the weights."""
    w = weights(prefix='')
    w['h.0.attn.bias'] = torch.ones(1, 1, T, T)
    half = {k for k in w if 'mlp' in k}
    there = folder(tmp_path / 'gpt2', w, 'gelu', half=half)
    said = train(there, text, tmp_path, *STILL, '--sequence', '16')
    rounded = {k: v.half().float() if k in half else v for k, v in w.items() if k != 'h.0.attn.bias'}
    assert said['validation_loss'] == pytest.approx(held_out_loss(rounded, 'gelu', text, 16), rel=1e-5)
    assert export(tmp_path)['transformer.wpe.weight'].shape == (16, D)


def test_a_run_of_ours_becomes_a_folder(tmp_path, tiny, text):
    r = run('train', *tiny, '--steps', '3', '--run', tmp_path / 'r', '--json', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    w = export(tmp_path)
    assert 'lm_head.weight' in w and w['transformer.h.1.mlp.c_fc.weight'].shape == (32, 128)
    vocab = json.loads((tmp_path / 'r.out' / 'vocab.json').read_text())
    assert len(vocab) == 256 and vocab['A'] == 65 and vocab['Ġ'] == 32
    r = run('tokenize', '--tokenizer', tmp_path / 'r.out', '--encode', text)
    assert [int(x) for x in r.stdout.split()] == list(text.read_bytes())


def refuse(tmp_path, text, want, change):
    there = folder(tmp_path / 'gpt2', weights())
    change(there)
    r = run('train', '--init', there, '--data', text, '--steps', '1', cwd=tmp_path)
    assert r.returncode != 0 and want in r.stderr, r.stderr


def config(**more):
    def change(there):
        path = there / 'config.json'
        path.write_text(json.dumps({**json.loads(path.read_text()), **more}))
    return change


def tensors(change_them):
    def change(there):
        w = load_file(there / 'model.safetensors')
        change_them(w)
        save_file(there / 'model.safetensors', w)
    return change


@pytest.mark.parametrize('want, change', [
    ('model_type is llama', config(model_type='llama')),
    ('n_head does not divide', config(n_head=5)),
    ('activation_function swish', config(activation_function='swish')),
    ('n_layer must be', config(n_layer=-1)),
    ('attention is scaled otherwise', config(scale_attn_by_inverse_layer_idx=True)),
    ('transformer.wte.weight has the shape', config(vocab_size=300)),
    ('config.json', lambda there: (there / 'config.json').unlink()),
    ('config.json:1', lambda there: (there / 'config.json').write_text('{')),
    ('model.safetensors', lambda there: (there / 'model.safetensors').unlink()),
    ('there is no transformer.h.1.ln_1.bias', tensors(lambda w: w.pop('transformer.h.1.ln_1.bias'))),
    ('holds NaN or infinity', tensors(lambda w: w['transformer.wpe.weight'].fill_(math.nan))),
])
def test_refused(tmp_path, text, want, change):
    refuse(tmp_path, text, want, change)


def test_other_shapes_are_no_gpt2(tmp_path, tiny):
    r = run('train', *tiny, '--steps', '2', '--kv-heads', '2', '--rotary', 'yes', '--rms', 'yes', '--gated', 'on', '--no-bias', 'true',
            '--run', tmp_path / 'r', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    r = run('export', tmp_path / 'r', '--to', tmp_path / 'y')
    assert r.returncode == 3 and 'this model differs' in r.stderr
    assert 'say where to' in run('export', tmp_path / 'r').stderr


@pytest.mark.skipif(not importlib.util.find_spec('transformers'), reason='transformers is not in Debian')
def test_transformers_reads_it(tmp_path, text):
    from transformers import GPT2LMHeadModel
    train(folder(tmp_path / 'gpt2', weights()), text, tmp_path, '--steps', '5')
    w = export(tmp_path)
    model = GPT2LMHeadModel.from_pretrained(tmp_path / 'r.out').eval()
    ids = torch.randint(0, V, (2, T))
    with torch.no_grad():
        assert torch.allclose(model(ids).logits.double(), logits(w, ids, 'gelu_new'), atol=1e-4)
