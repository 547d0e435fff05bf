# SPDX-License-Identifier: Apache-2.0
"""Compression of what goes between hosts, as a user sees it."""
import json

import pytest

from conftest import ROOT, events, metrics, run

TWO_HOSTS = ['--hosts', '2', '--cards-per-host', '2', '--data-parallel', '4', '--steps', '16', '--isolation', 'groups']


def train(tiny, tmp_path, name, *flags):
    """The summary and the rows of a finished run."""
    r = run('train', *tiny, *TWO_HOSTS, '--run', tmp_path / name, '--json', *flags, cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    return events(r.stdout)[-1], metrics(tmp_path / name)


def net_bytes(rows):
    return sum(row['bytes_net'] for row in rows)


@pytest.mark.parametrize('codec,least', [('onebit', .9), ('ternary', .93), ('topk:0.01+int8', .9), ('int4', .8), ('bf16', .45)])
def test_fewer_bytes(tiny, tmp_path, codec, least):
    """The counted bytes of the network fall, and the summary says by how much."""
    plain, plain_rows = train(tiny, tmp_path, 'plain')
    coded, coded_rows = train(tiny, tmp_path, 'coded', '--compression', codec)
    assert 'compression' not in plain
    saved = coded['compression']
    assert saved['codec'].startswith(codec)
    assert saved['coded_bytes'] < (1 - least) * saved['plain_bytes']
    assert net_bytes(coded_rows) < (1 - least + .05) * net_bytes(plain_rows)
    assert coded_rows[-1]['loss'] < coded_rows[0]['loss'] - .3


def test_table_report_and_plan(tiny, tmp_path):
    flags = [*tiny, *TWO_HOSTS, '--compression', 'int4', '--compression-warmup', '4']
    r = run('train', *flags, '--run', tmp_path / 'r', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    line = next(x for x in r.stdout.splitlines() if x.startswith('  compressed'))
    assert 'int4, parameters kept' in line and 'between hosts instead of' in line and '% less' in line
    html = (tmp_path / 'r' / 'report.html').read_text()
    assert 'between hosts instead of' in html
    assert 'encoding  gradients int4' in (tmp_path / 'r' / 'plan.txt').read_text()
    rows = metrics(tmp_path / 'r')
    assert rows[4]['bytes_net'] < rows[3]['bytes_net'] / 5  # the warm-up goes as it is
    placed = flags.index('--isolation') # where workers run is no matter of a plan
    r = run('plan', *flags[:placed], *flags[placed + 2:], '--program', '0', cwd=tmp_path)
    assert 'int4 between hosts' in r.stdout


def test_resume_keeps_what_is_owed(tiny, tmp_path):
    """Stopped and resumed, the losses are those of the run that was let alone."""
    flags = ['--compression', 'topk:0.05+int4', '--lr-min', '3e-3']  # a rate that no number of steps changes
    whole = train(tiny, tmp_path, 'whole', *flags)[1]
    train(tiny, tmp_path, 'half', *flags, '--steps', '8')
    r = run('train', '--resume', '--run', tmp_path / 'half', '--steps', '16', '--json', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    assert [row['loss'] for row in metrics(tmp_path / 'half')] == [row['loss'] for row in whole]


def test_resume_on_other_hosts(tiny, tmp_path):
    train(tiny, tmp_path, 'r', '--compression', 'onebit', '--steps', '8')
    r = run('train', '--resume', '--run', tmp_path / 'r', '--steps', '16', '--hosts', '4', '--cards-per-host', '1',
            '--json', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    assert metrics(tmp_path / 'r')[-1]['step'] == 16


def test_auto_says_what_and_why(tiny, tmp_path):
    r = run('train', *tiny, *TWO_HOSTS, '--compression', 'auto', '--run', tmp_path / 'r', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    assert r.stderr.count('compression: auto ') == 1
    assert '/s between hosts' in r.stderr and '/s of coding' in r.stderr


@pytest.mark.parametrize('flags,words', [
    (['--compression', 'zip'], ['compression', 'zip', 'onebit', 'powersgd']),
    (['--compression', 'topk:2'], ['topk']),
    (['--compression', 'onebit', '--compression-warmup', '17'], ['compression.warmup 17 is more than steps 16']),
    (['--compression', 'onebit', '--compression-momentum', '.9'], ['compression.momentum corrects topk']),
    (['--compression', 'onebit', '--compression-parameters', 'powersgd:2'], ['compression.parameters', 'another codec']),
])
def test_wrong(tiny, tmp_path, flags, words):
    r = run('train', *tiny, *TWO_HOSTS, *flags, cwd=tmp_path)
    assert r.returncode == 2, r.stderr
    for word in words:
        assert word in r.stderr


def test_job_file(tiny, tmp_path, text):
    job = tmp_path / 'job.yaml'
    job.write_text(f'data: {text}\nmodel: {{layers: 1, hidden: 32, heads: 4, sequence: 32}}\nsteps: 4\nhosts: 2\n'
                   'compression: {codec: onebit, parameters: 2xonebit}\n')
    r = run('train', job, '--run', tmp_path / 'r', '--json', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    assert json.loads((tmp_path / 'r' / 'compression.json').read_text())['codec'] == 'onebit, parameters 2xonebit'
    job.write_text(job.read_text().replace('{codec: onebit, parameters: 2xonebit}', 'onebit'))
    assert run('plan', job, cwd=tmp_path).returncode == 0
    job.write_text(job.read_text().replace('onebit', 'onebyte'))
    r = run('plan', job, cwd=tmp_path)
    assert r.returncode == 2 and 'job.yaml:5' in r.stderr and 'onebit' in r.stderr


def test_the_recommended_setting_leaves_a_twentieth(tmp_path):
    """doc/compression.md: at most 5 % of the bytes of the text job remain; that the loss stays says tool/compression."""
    job = ROOT / 'examples' / 'gpt-english.yaml'
    r = run('train', job, '--hosts', '2', '--cards-per-host', '1', '--tensor', '1', '--pipeline', '1', '--data-parallel', '2',
            '--gradient-accumulation', '1', '--steps', '6', '--eval-samples', '1', '--isolation', 'groups', '--compression', 'ternary',
            '--run', tmp_path / 'r', '--json', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    saved = events(r.stdout)[-1]['compression']
    assert saved['coded_bytes'] <= .05 * saved['plain_bytes']


def test_feedback_is_a_choice(tiny, tmp_path):
    """What a code leaves out is a part of a checkpoint where it is sent later, and nothing where it is not."""
    size = {}
    for word in ('yes', 'no', 'auto'):
        train(tiny, tmp_path, word, '--compression', 'ternary', '--compression-feedback', word)
        size[word] = sum(f.stat().st_size for f in (tmp_path / word / 'checkpoints').rglob('*') if f.is_file())
    assert size['yes'] > 1.2 * size['no'] and abs(size['auto'] - size['no']) < 500
    r = run('train', *tiny, *TWO_HOSTS, '--compression', 'ternary', '--compression-feedback', 'maybe', cwd=tmp_path)
    assert r.returncode == 2 and 'auto yes no' in r.stderr, r.stderr
