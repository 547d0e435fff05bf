# SPDX-License-Identifier: Apache-2.0
"""supernode bench: the form of what it says. Never how fast: that depends on who else is here."""
import json, math, shutil

import pytest

from conftest import run

KEYS = {'name', 'value', 'unit', 'samples', 'peer', 'peer_value', 'peer_samples', 'ratio', 'bound', 'share', 'bar', 'met', 'commit',
        'machine'}


def bench(*args, env=None):
    r = run('bench', *args, '--json', timeout=100, env=env)
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


def test_coll_beside_its_peer():
    case = bench('coll', '--only', '1MiB', '--pairs', '2')['all_reduce_2_ranks_1MiB']
    assert case['unit'] == 'us' and case['bar'] == '>= 2x Open MPI' and case['bound']
    if shutil.which('mpirun.openmpi') and shutil.which('mpicc.openmpi'):
        assert len(case['peer_samples']) == 2 and case['ratio'] > 0
    else:
        assert case['peer_samples'] == [] and 'not installed' in case['note']


def test_peer_that_is_missing_is_named(tmp_path):
    (tmp_path / 'empty').mkdir()
    case = bench('coll', '--only', '2_ranks_1MiB', '--pairs', '1', env={'PATH': str(tmp_path / 'empty')})['all_reduce_2_ranks_1MiB']
    assert case['peer_samples'] == [] and case['ratio'] is None and case['met'] is False
    assert 'Open MPI is not installed' in case['note']


@pytest.mark.parametrize('area, code, want', [
    ('sim', 3, 'nothing to measure in sim yet'),
    ('sched', 3, 'nothing to measure in sched yet'),
    ('colls', 2, "no area 'colls'; there are compute, "),
])
def test_areas_without_cases(area, code, want):
    r = run('bench', area)
    assert r.returncode == code and want in r.stderr and not r.stdout


def test_only_that_matches_nothing():
    r = run('bench', 'plan', '--only', 'xyz')
    assert r.returncode == 2 and "has 'xyz' in its name" in r.stderr
