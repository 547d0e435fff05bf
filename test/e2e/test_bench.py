# SPDX-License-Identifier: Apache-2.0
"""supernode bench: the form of what it says. Never how fast: that depends on who else is here."""
import json, math, os, pathlib, shutil, subprocess

import pytest

from conftest import run

KEYS = {'name', 'value', 'unit', 'samples', 'peer', 'peer_value', 'peer_samples', 'ratio', 'bound', 'share', 'bar', 'met', 'commit',
        'machine'}


def bench(*args, env=None):
    r = run('bench', *args, '--json', timeout=200, env=env)
    assert r.returncode == 0, r.stderr
    cases = [json.loads(line) for line in r.stdout.splitlines()]
    for case in cases:
        assert KEYS <= case.keys(), case
        assert case['samples'] and all(math.isfinite(v) and v > 0 for v in case['samples']), case
        assert 'cores' in case['machine']
        assert case['met'] in (None, False), 'two samples cannot show that a bar is met'
        assert (case['met'] is None) == (case['bar'] is None)
        if case['bound'] is not None:
            assert case['bound'] > 0 and case['share'] > 0
    return {case['name']: case for case in cases}


def test_compute():
    cases = bench('compute', '--only', 'compute_linear_2048x768x256', '--pairs', '2')
    case = cases['compute_linear_2048x768x256']
    assert len(cases) == 1 and len(case['samples']) == 2
    assert case['unit'] == 'GF/s' and case['bound'] and case['peer_samples'] == []


@pytest.mark.parametrize('only, names, bar', [
    ('2_ranks_1MiB', {'all_reduce_2_ranks_1MiB': True, 'all_reduce_2_ranks_1MiB_malloc': True}, '>= 3x Open MPI, >= 75 % of shared-memory loop'),
    ('8_ranks_4B', {'all_reduce_8_ranks_4B': False}, '>= 2x Open MPI'),
])
def test_coll_beside_its_peer(only, names, bar):
    cases = bench('coll', '--only', only, '--pairs', '2')
    case = next(iter(cases.values()))
    assert cases.keys() == names.keys() and case['bar'] == bar
    for name, bounded in names.items():
        assert (cases[name]['bound'] is not None) == bounded
    assert case['unit'] == 'us'
    if shutil.which('mpirun.openmpi') and shutil.which('mpicc.openmpi'):
        assert len(case['peer_samples']) == 2 and case['ratio'] > 0
    else:
        assert case['peer_samples'] == [] and 'not installed' in case['note']


def test_peer_that_is_missing_is_named(tmp_path):
    (tmp_path / 'empty').mkdir()
    case = bench('coll', '--only', '2_ranks_8B', '--pairs', '1', env={'PATH': str(tmp_path / 'empty')})['all_reduce_2_ranks_8B']
    assert case['peer_samples'] == [] and case['ratio'] is None and case['met'] is False
    assert 'Open MPI is not installed' in case['note']


def test_gloo():
    case = bench('gloo', '--only', '2_ranks_4MiB', '--pairs', '2')['all_reduce_gloo_2_ranks_4MiB']
    torch = not subprocess.run(['/usr/bin/python3', '-c', 'import torch'], capture_output=True).returncode if os.path.exists('/usr/bin/python3') else False
    assert case['bar'] == '>= 4x Gloo'
    if torch:
        assert len(case['peer_samples']) == 2 and case['ratio'] > 0
    else:
        assert case['peer_samples'] == [] and 'not installed' in case['note']


def has_hosts():
    return os.geteuid() == 0 and shutil.which('ip') and shutil.which('tc')


@pytest.mark.skipif(not has_hosts(), reason='hosts in namespaces need root, ip and tc')
def test_link_is_as_slow_as_it_is_shaped():
    case = bench('link', '--only', 'in_order', '--pairs', '2')['all_reduce_1Gbit_ring_in_order']
    assert case['bound'] == pytest.approx(536871, rel=1e-3) and case['peer'] == 'ring in host order'
    assert case['share'] < 1, 'more than the wire carries'
    assert min(case['peer_samples']) > 1.5 * case['bound'], 'a ring sends one and a half times as much'


def test_watching():
    cases = bench('watch', '--pairs', '2')
    assert cases['watch_silence_2_ranks_8B']['bar'] == '>= 0.97x without noticing silence'
    assert len(cases['watch_recorder_2_ranks_8B']['peer_samples']) == 2
    assert len(cases['watch_abort_4_ranks']['samples']) == 8


@pytest.mark.skipif(not has_hosts(), reason='hosts in namespaces need root, ip and tc')
def test_known_dead():
    cases = bench('heal', '--only', 'known', '--pairs', '1')
    assert cases.keys() == {f'heal_known_{end}' for end in ('killed_64MiB', 'killed_2GiB', 'killed_other_host', 'stopped',
                                                            'stopped_other_host', 'link_cut')}
    assert cases['heal_known_killed_2GiB']['bar'] == 'p99 <= 20 ms' and '2.00 GiB' in cases['heal_known_killed_2GiB']['note']


def test_codecs():
    cases = bench('codec', '--only', 'int8', '--pairs', '2')
    assert cases.keys() == {'codec_encode_int8', 'codec_decode_int8', 'codec_encode_topk_int8', 'codec_decode_topk_int8'}


@pytest.mark.parametrize('area, code, want', [
    ('sched', 3, 'nothing to measure in sched yet'),
    ('colls', 2, "no area 'colls'; there are compute, "),
])
def test_areas_without_cases(area, code, want):
    r = run('bench', area)
    assert r.returncode == code and want in r.stderr and not r.stdout


def test_flags_of_calibrate_are_not_passed_over():
    r = run('bench', 'plan', '--hosts', '2')
    assert r.returncode == 2 and '--hosts is for bench calibrate' in r.stderr


def test_only_that_matches_nothing():
    r = run('bench', 'plan', '--only', 'xyz')
    assert r.returncode == 2 and "has 'xyz' in its name" in r.stderr
