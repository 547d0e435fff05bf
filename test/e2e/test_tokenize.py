# SPDX-License-Identifier: Apache-2.0
"""The tokenizer as a user meets it: learnt, applied, read by others, trained with."""
import importlib.util, json, math, random, subprocess, unicodedata

import pytest

from conftest import SUPERNODE, events, metrics, run


# ---- GPT-2's encoder written down once more, the slow way, from its two published files ----

def letters():
    """byte → the printable character that stands for it"""
    plain = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    table, extra = {b: chr(b) for b in plain}, 0
    for b in range(256):
        if b not in table:
            table[b], extra = chr(256 + extra), extra + 1
    return table


SPACES = set('\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000') | {chr(c) for c in range(0x2000, 0x200b)}


def kind(c):
    if c in SPACES:
        return 's'
    return {'L': 'L', 'N': 'N'}.get(unicodedata.category(c)[0], 'o')


def words(text):
    at = 0
    while at < len(text):
        start = at
        for end in ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d"):
            if text.startswith(end, at):
                at += len(end)
                break
        else:
            at += text[at] == ' ' and at + 1 < len(text) and kind(text[at + 1]) != 's'
            k = kind(text[at])
            while at < len(text) and kind(text[at]) == k:
                at += 1
            if k == 's' and at < len(text) and at - start > 1:
                at -= 1
        yield text[start:at]


def encode(folder, text):
    vocab = json.loads((folder / 'vocab.json').read_text())
    lines = (folder / 'merges.txt').read_text().split('\n')
    assert lines[0].startswith('#version')
    rank = {tuple(line.split(' ')): i for i, line in enumerate(lines[1:]) if line}
    stand_in, out = letters(), []
    for word in words(text):
        parts = [stand_in[b] for b in word.encode()]
        while len(parts) > 1:
            best = min(zip(parts, parts[1:]), key=lambda p: rank.get(p, math.inf))
            if best not in rank:
                break
            merged, i = [], 0
            while i < len(parts):
                here = tuple(parts[i:i + 2]) == best
                merged.append(''.join(best) if here else parts[i])
                i += 1 + here
            parts = merged
        out += [vocab[p] for p in parts]
    return out


@pytest.fixture(scope='module')
def tok(tmp_path_factory, text):
    """A folder with all three files, learnt from the tests' text and some of many scripts."""
    folder = tmp_path_factory.mktemp('tok')
    source = folder / 'source.txt'
    source.write_text(text.read_text()[:20000] + 'été Öl 日本語 日本 ١٢٣ 123 12 ½² it\'s they\'ll  \n\n end ' * 30)
    r = run('tokenize', '--train', source, '--vocab', '340', '--out', f'{folder}/tok/', '--json')
    assert r.returncode == 0, r.stderr
    assert events(r.stdout)[0]['vocab'] == 340
    return folder / 'tok'


def ids_of(tok, path):
    r = run('tokenize', '--tokenizer', tok, '--encode', path)
    assert r.returncode == 0, r.stderr
    return [int(x) for x in r.stdout.split()]


def test_ids_are_gpt2s(tok, tmp_path):
    """On random text of many scripts the ids are those of the rules as published."""
    draw = random.Random(5)
    alphabet = "aeinost'lre  \n\tABz09½²١日本語éÖß\u00a0\u3000\u2003😀.,;!?-" + ''.join(chr(draw.randrange(0x80, 0x2fff)) for _ in range(60))
    text = ''.join(draw.choice(alphabet) for _ in range(20000)) + " the cat's bird they'll sees"
    path = tmp_path / 'x'
    path.write_text(text, newline='')
    assert ids_of(tok, path) == encode(tok, text)


@pytest.mark.skipif(not importlib.util.find_spec('tokenizers'), reason='the tokenizers package is not in Debian')
def test_tokenizers_reads_it(tok, tmp_path, text):
    from tokenizers import Tokenizer
    there = Tokenizer.from_file(str(tok / 'tokenizer.json'))
    sample = text.read_text()[:5000] + "été it's  \n\n 日本語"
    path = tmp_path / 'x'
    path.write_text(sample)
    assert ids_of(tok, path) == there.encode(sample).ids


def test_any_bytes_come_back(tok, tmp_path):
    path, ids = tmp_path / 'bytes', tmp_path / 'ids'
    data = random.Random(1).randbytes(50000) + bytes(range(256)) + b'the cat sees' * 50
    path.write_bytes(data)
    ids.write_text(' '.join(map(str, ids_of(tok, path))))
    r = run('tokenize', '--tokenizer', tok, '--decode', ids, '--out', tmp_path / 'same.json')
    assert r.returncode == 0
    back = subprocess.run([SUPERNODE, 'tokenize', '--tokenizer', tok, '--decode', ids], capture_output=True).stdout
    assert back == data
    assert (tmp_path / 'same.json').read_text() == (tok / 'tokenizer.json').read_text()


def test_learning_is_deterministic(tmp_path, text):
    for name in 'ab':
        assert run('tokenize', '--train', text, '--vocab', '400', '--out', tmp_path / f'{name}.json').returncode == 0
    assert (tmp_path / 'a.json').read_bytes() == (tmp_path / 'b.json').read_bytes()


@pytest.mark.parametrize('args, want', [
    ([], 'either --train FILE or --tokenizer FILE'),
    (['--train', 'x'], 'nothing is asked for'),
    (['--train', '/nonexistent', '--out', 'y'], 'does not exist'),
    (['--tokenizer', '/nonexistent', '--out', 'y'], 'cannot be read'),
    (['--tokenizer', '/', '--out', 'y'], 'neither tokenizer.json nor vocab.json'),
    (['--tokenizer', 'x', '--vocab', '300', '--out', 'y'], '--vocab is for --train'),
    (['--tokenizer', 'x', '--encode', 'a', '--decode', 'b'], 'either --encode FILE or --decode FILE'),
])
def test_mistakes(args, want):
    r = run('tokenize', *args)
    assert r.returncode in (1, 2, 3) and want in r.stderr


def test_decoding_refuses_what_is_no_id(tok, tmp_path):
    for bad in ('340', '-1', 'x', '99999999999999999999'):
        (tmp_path / 'ids').write_text(f'1 2 {bad}')
        r = run('tokenize', '--tokenizer', tok, '--decode', tmp_path / 'ids')
        assert r.returncode and 'is no id from 0 to 339' in r.stderr


def test_a_job_trains_with_it(tok, tmp_path, tiny, text):
    """Losses are per byte; the run keeps its tokenizer; resuming and generating need no other file."""
    copy = tmp_path / 'tok.json'
    copy.write_text((tok / 'tokenizer.json').read_text())
    args = ['train', *tiny, '--tokenizer', copy, '--data-cache', tmp_path, '--run', tmp_path / 'r']
    r = run(*args, '--steps', '30', '--json', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    summary = events(r.stdout)[-1]
    assert 2 < summary['bytes_per_token'] < 12
    assert summary['bits_per_byte'] == pytest.approx(summary['validation_loss'] / math.log(2))
    rows = metrics(tmp_path / 'r')
    assert rows[0]['loss'] * summary['bytes_per_token'] == pytest.approx(math.log(340), rel=0.15)
    assert rows[-1]['loss'] < rows[0]['loss']
    assert summary['validation_loss'] == pytest.approx(rows[-1]['loss'], rel=0.25)
    copy.unlink()
    assert 'vocab: 340' in (tmp_path / 'r' / 'job.yaml').read_text()
    r = run('train', '--resume', '--run', tmp_path / 'r', '--steps', '32', '--tensor', '2', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    r = run('generate', tmp_path / 'r', '--prompt', 'the cat', '--bytes', '50')
    assert r.returncode == 0 and r.stdout.startswith('the cat') and len(r.stdout) > 50


def test_a_tokenizer_decides_the_vocabulary(tok, tmp_path, tiny):
    plan = run('plan', *tiny, '--tokenizer', tok)
    assert plan.returncode == 0, plan.stderr
    r = run('train', *tiny, '--tokenizer', tok, '--vocab', '300', '--steps', '1', '--data-cache', tmp_path, cwd=tmp_path)
    assert r.returncode == 3 and 'the tokenizer has 340 tokens' in r.stderr
    r = run('train', *tiny, '--tokenizer', tmp_path / 'none', '--steps', '1', cwd=tmp_path)
    assert r.returncode != 0 and 'cannot be read' in r.stderr
