# SPDX-License-Identifier: Apache-2.0
"""Job files, good and bad: every bad one gets one sentence with its place, at once."""
import shutil, subprocess, time

import pytest

from conftest import GOLDEN, ROOT, run

CASES = sorted((GOLDEN / 'yaml').glob('*.yaml'))

# What the sentence must contain, by case.
SAYS = {
    'y20': ['batch_size', 'twice', 'line 6', ':10:'], 'y21': ['tensor', 'twice'], 'y22': [':3:'], 'y23': ['precision', 'no', 'f32'],
    'y24': ['checkpoint'], 'y26': ['1:30', 'gradient_accumulation'], 'y27_': ['9223372036854775808', 'batch_size'],
    'y27b': ['-8', 'batch_size'], 'y27c': ['gradient_accumulation'], 'y27d': ['5.5'], 'y27e': ['.nan'], 'y27f': ['1e999'],
    'y27g': ['5x'], 'y27h': ['4294967296', 'cards'], 'y28': ['document'], 'y29': ['alias'], 'y30': ['l0'], 'y31': ['deep'],
    'y32_': ['empty'], 'y32b': ['empty'], 'y32c': ['mapping'], 'y33_': ['b\\xd0\\xb0tch_size', 'not ASCII'],
    'y33b': ['gradiant_acumulation', 'did you mean gradient_accumulation?', ':3:'], 'y34': [':9:'], 'y35': ['data', 'value'],
    'y36': ['heads', '3', 'tensor', '2'], 'y37': ['no-such-host.invalid', 'resolved'], 'y40': ['UTF-8'],
    'y41': ['1000000'],
}


def prepared(path, tmp_path, text):
    out = tmp_path / 'job.yaml'
    out.write_bytes(path.read_bytes().replace(b'TEXT', str(text).encode()).replace('TEXT'.encode('utf-16-le'), str(text).encode('utf-16-le')))
    return out


@pytest.mark.parametrize('path', CASES, ids=lambda p: p.stem)
def test_case(path, tmp_path, text):
    job = prepared(path, tmp_path, text)
    bad = '_bad_' in path.name and 'or_accept' not in path.name
    start = time.monotonic()
    verb = 'train' if path.name.startswith('y41') else 'plan'
    r = run(verb, job, cwd=tmp_path, timeout=20)
    took = time.monotonic() - start
    if 'anchor_merge' in path.name and r.returncode == 2:
        assert "unknown key 'x'" in r.stderr and ':2:' in r.stderr
        return
    if not bad:
        assert r.returncode == 0, r.stderr
        return
    if 'or_documented' not in path.name:
        assert r.returncode in (2, 3), r.stderr
    assert r.returncode in (2, 3)
    assert took < 5
    sentence = r.stderr.strip()
    assert len(sentence.splitlines()) == 1, sentence
    for key, words in SAYS.items():
        if path.name.startswith(key):
            for word in words:
                assert word in sentence
    assert not (tmp_path / 'runs').exists()


def test_quoted_number_is_that_number(tmp_path, text):
    """y39: steps: "5" is 5, never 0."""
    job = prepared(GOLDEN / 'yaml' / 'y39_bad_quoted_number_or_accept.yaml', tmp_path, text)
    r = run('train', job, '--run', tmp_path / 'r', '--isolation', 'groups', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    assert len((tmp_path / 'r' / 'metrics.jsonl').read_text().splitlines()) == 5


def test_anchors_and_merge_keep_their_values(tmp_path, text):
    job = tmp_path / 'job.yaml'
    job.write_text(f'parallelism: &p {{tensor: 2, pipeline: 1, data: 1}}\ndata: {text}\nmodel: {{layers: 2, hidden: 64, heads: 4, sequence: 64}}\n')
    r = run('plan', job, '--json', cwd=tmp_path)
    assert r.returncode == 0 and '"tensor": 2' in r.stdout


@pytest.mark.parametrize('spelling', ['1e-4', '1E-4', '+1e-4', '.1e-3', '1.e-4', '0.0001'])
def test_numbers_in_every_spelling(spelling, tmp_path, tiny):
    r = run('plan', *tiny, '--lr', spelling, cwd=tmp_path)
    assert r.returncode == 0, r.stderr


def test_flag_wins_over_file(tmp_path, text):
    job = prepared(GOLDEN / 'yaml' / 'y00_good_base.yaml', tmp_path, text)
    r = run('plan', job, '--tensor', '1', '--json', cwd=tmp_path)
    assert '"tensor": 1' in r.stdout


def test_missing_file(tmp_path):
    r = run('plan', 'no-such.yaml', cwd=tmp_path)
    assert r.returncode == 2 and 'no-such.yaml' in r.stderr


@pytest.mark.parametrize('make, words', [
    (lambda p: None, ['missing.txt']),
    (lambda p: p.write_text(''), ['empty']),
    (lambda p: p.write_text('too short'), ['missing.txt']),
    (lambda p: p.mkdir(), ['missing.txt', '.txt']),
])
def test_data_file(make, words, tmp_path, tiny):
    path = tmp_path / 'missing.txt'
    make(path)
    r = run('train', *tiny, '--data', path, cwd=tmp_path)
    assert r.returncode in (2, 3)
    for word in words:
        assert word in r.stderr
    assert str(tmp_path) in r.stderr
    assert not (tmp_path / 'runs').exists()


@pytest.mark.parametrize('flags, words', [
    (['--heads', '3', '--hidden', '33', '--tensor', '2'], ['heads', '3', 'tensor']),
    (['--batch-size', '7', '--data-parallel', '2'], ['7', '2']),
    (['--tensor', '4', '--hosts', '1', '--cards-per-host', '2'], ['4', '2']),
    (['--pipeline', '900'], ['900']),
    (['--memory', '64KiB'], ['KiB']),
])
def test_what_cannot_be(flags, words, tmp_path, tiny):
    r = run('plan', *tiny, *flags, cwd=tmp_path)
    assert r.returncode == 3, r.stderr
    for word in words:
        assert word in r.stderr


def test_a_plan_as_a_picture(tmp_path):
    """The graph with a box a stage; communication is on the edges. Graphviz reads it, where it is there."""
    job = ROOT / 'examples' / 'gpt-english.yaml'
    r = run('plan', job, '--dot')
    assert r.returncode == 0, r.stderr
    assert r.stdout.startswith('digraph plan {') and r.stdout.count('subgraph cluster_') == 2
    assert 'sum to dim 0' in r.stdout and 'send' in r.stdout and r.stdout.count('{') == r.stdout.count('}')
    whole = run('plan', job, '--tensor', '1', '--pipeline', '1', '--data-parallel', '8', '--dot').stdout
    assert 'penwidth=3' not in whole and 'send' not in whole
    if shutil.which('dot'):
        drawn = subprocess.run(['dot', '-Tsvg'], input=r.stdout, capture_output=True, text=True)
        assert drawn.returncode == 0 and '<svg' in drawn.stdout, drawn.stderr
