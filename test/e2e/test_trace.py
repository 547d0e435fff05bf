# SPDX-License-Identifier: Apache-2.0
"""Communication that hides: the trace of a few steps, the summary's figures, a link that is slowed down."""
import json, os

import pytest

from conftest import events, metrics, run

HOSTS = ['--hosts', '2', '--cards-per-host', '1', '--tensor', '1', '--pipeline', '1', '--data-parallel', '2']
root_only = pytest.mark.skipif(os.geteuid() != 0, reason='emulated networks need root')


def test_a_trace_has_every_card(tiny, tmp_path):
    r = run('train', *tiny, *HOSTS, '--isolation', 'groups', '--steps', '6', '--trace', 'out.json', '--trace-steps', '2', '--json',
            cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    assert events(r.stdout)[-1]['trace'] == 'out.json'
    all = json.loads((tmp_path / 'out.json').read_text())['traceEvents']
    for rank in (0, 1):
        mine = [e for e in all if e['pid'] == rank and e['ph'] == 'X']
        assert {e['args']['step'] for e in mine} == {2, 3}
        assert {'forward', 'backward', 'optimizer'} <= {e['cat'] for e in mine}
        assert any(e['name'].startswith('reduce_scatter') and e['cat'] == 'transfer' for e in mine)
        assert any('data[s0,t0]' in e['name'] and e['args']['bytes'] > 0 for e in mine)
        lanes = {}
        for e in sorted(mine, key=lambda e: e['ts']):
            assert e['dur'] >= 0
            assert e['ts'] >= lanes.get(e['tid'], 0) - 1e-3, 'events of a lane do not overlap'
            lanes[e['tid']] = e['ts'] + e['dur']
        names = [e['args']['name'] for e in all if e['pid'] == rank and e['name'] == 'process_name']
        assert names and f'rank {rank}' in names[0] and f'(h{rank})' in names[0]


def test_a_trace_without_a_second_step(tiny, tmp_path):
    r = run('train', *tiny, '--steps', '1', '--trace', 'out.json', cwd=tmp_path)
    assert r.returncode == 0 and 'no second step' in r.stderr, r.stderr
    assert not (tmp_path / 'out.json').exists()


def test_a_trace_that_cannot_be_written(tiny, tmp_path):
    r = run('train', *tiny, '--steps', '4', '--trace', 'no/such/out.json', cwd=tmp_path)
    assert r.returncode == 0 and 'no/such/out.json' in r.stderr, r.stderr


def test_what_is_exposed_was_under_way(tiny, tmp_path):
    r = run('train', *tiny, *HOSTS, '--isolation', 'groups', '--steps', '8', '--run', tmp_path / 'r', '--json', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    end = events(r.stdout)[-1]
    assert end['comm_s'] > 0 and 0 <= end['comm_hidden_share'] <= 1 and 0 <= end['comm_exposed_share'] <= 1
    for row in metrics(tmp_path / 'r'):
        assert 0 < row['comm_ns'] <= row['step_ns']


@root_only
def test_a_link_that_is_slowed_down(tiny, tmp_path):
    r = run('train', *tiny, *HOSTS, '--steps', '3', '--link', '80Mbit/s', '--run', tmp_path / 'r', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    link = json.loads((tmp_path / 'r' / 'links.json').read_text())[0]
    assert 3e6 < link['bytes_per_s'] < 13e6, '80 Mbit/s are 10 MB/s, and a bucket of 128 KiB'
    r = run('train', '--resume', '--run', tmp_path / 'r', '--steps', '5', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    assert '80000000bit/s' in (tmp_path / 'r' / 'job.yaml').read_text()


@pytest.mark.parametrize('rate', ['fast', '1Gbit', '-1Gbit/s', '0Mbit/s', '5bit/s', 'Mbit/s'])
def test_a_rate_that_is_none(rate, tiny, tmp_path):
    r = run('train', *tiny, *HOSTS, f'--link={rate}', cwd=tmp_path)
    assert r.returncode == 2 and 'link' in r.stderr and '1Gbit/s' in r.stderr, r.stderr


def test_a_link_needs_a_network(tiny, tmp_path):
    r = run('train', *tiny, *HOSTS, '--link', '1Gbit/s', '--isolation', 'groups', '--steps', '2', cwd=tmp_path)
    assert r.returncode != 0 and 'namespaces' in r.stderr, r.stderr


def test_no_overlap_is_the_same_training(tiny, tmp_path):
    rows = {}
    for word in ('yes', 'no'):
        r = run('train', *tiny, *HOSTS, '--isolation', 'groups', '--steps', '5', '--no-overlap', word, '--run', tmp_path / word, cwd=tmp_path)
        assert r.returncode == 0, r.stderr
        rows[word] = [m['loss'] for m in metrics(tmp_path / word)]
    assert rows['yes'] == rows['no']
