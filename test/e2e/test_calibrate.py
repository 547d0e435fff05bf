# SPDX-License-Identifier: Apache-2.0
"""supernode bench calibrate and what uses its model. Never how good the model is: that depends on who else is here."""
import json, pathlib, shutil, subprocess

import pytest

from conftest import SUPERNODE, events, run


@pytest.fixture(scope='module')
def cache(tmp_path_factory):
    """A cache with the calibration of one host of two cards, and what making it said."""
    home = tmp_path_factory.mktemp('cache')
    r = run('bench', 'calibrate', '--hosts', '1', '--cards', '2', '--json', env={'XDG_CACHE_HOME': str(home)})
    assert r.returncode == 0, r.stderr
    return home, json.loads(r.stdout)


def explain(home, *args):
    return run('coll', 'explain', '--hosts', '1', '--cards', '2', '--json', *args, env={'XDG_CACHE_HOME': str(home)})


def copy_of(home, tmp_path):
    """The cache and its only file, to spoil."""
    shutil.copytree(home, tmp_path / 'cache')
    (path,) = (tmp_path / 'cache' / 'supernode').iterdir()
    return tmp_path / 'cache', path


def test_what_is_kept(cache):
    home, said = cache
    path = pathlib.Path(said['path'])
    assert path.parent == home / 'supernode' and list(path.parent.iterdir()) == [path], 'one file, no temporary ones'
    kept = json.loads(path.read_text())
    assert {**kept, 'path': str(path)} == said
    assert (kept['hosts'], kept['cards'], kept['kind']) == (1, 2, 'one')
    assert kept['seconds'] <= 60 and kept['samples'] >= 20 and kept['error'] >= 0
    for rate in ('signal_ns', 'copy_bytes_per_s', 'reduce_bytes_per_s', 'contention'):
        assert kept['rates'][rate] > 0
    assert kept['rates']['net_latency_ns'] == 0, 'there is no network in one host'


def test_hosts_have_a_network(tmp_path):
    r = run('bench', 'calibrate', '--hosts', '2', '--cards', '1', '--json', env={'XDG_CACHE_HOME': str(tmp_path)})
    assert r.returncode == 0, r.stderr
    said = json.loads(r.stdout)
    assert said['kind'] == 'emulated' and said['rates']['net_latency_ns'] > 500 and said['rates']['net_bytes_per_s'] > 1e6


def test_explain_says_where_its_model_is_from(cache, tmp_path):
    home, said = cache
    model = json.loads(explain(home).stdout)['model']
    assert model['from'] == 'calibration' and model['path'] == said['path'] and model['when'] == said['when']
    assert json.loads(explain(tmp_path).stdout)['model']['from'] == 'topology'
    text = run('coll', 'explain', '--hosts', '1', '--cards', '2', env={'XDG_CACHE_HOME': str(home)}).stdout
    assert f"calibrated {said['when']}" in text and said['path'] in text
    other = run('coll', 'explain', '--hosts', '2', '--cards', '2', env={'XDG_CACHE_HOME': str(home)})
    assert 'supernode bench calibrate --hosts 2 --cards 2' in other.stdout and not other.stderr


@pytest.mark.parametrize('spoil, want', [
    (lambda text: text[:len(text) // 2], 'it is damaged'),
    (lambda text: '', 'it is damaged'),
    (lambda text: '[]', 'it is damaged'),
    (lambda text: '{"format": 1}', 'it is damaged'),
    (lambda text: json.dumps({**json.loads(text), 'machine': 'Abacus, 3 cores'}), 'of another machine (Abacus, 3 cores)'),
    (lambda text: json.dumps({**json.loads(text), 'version': '0.0.1'}), 'version 0.0.1 wrote it'),
    (lambda text: json.dumps({**json.loads(text), 'cards': 5}), 'of 1 hosts of 5 cards'),
    (lambda text: json.dumps({**json.loads(text), 'model': {}}), 'is not used'),
    (lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != 'model'}), 'it has no model'),
])
def test_a_file_that_cannot_be_used_is_passed_over(cache, tmp_path, spoil, want):
    home, path = copy_of(cache[0], tmp_path)
    path.write_text(spoil(path.read_text()))
    r = explain(home)
    assert r.returncode == 0 and json.loads(r.stdout)['model']['from'] == 'topology'
    assert want in r.stderr and str(path) in r.stderr and len(r.stderr.splitlines()) == 1


def test_without_a_place_to_keep_it(cache):
    r = run('bench', 'calibrate', '--hosts', '1', '--cards', '2', env={'XDG_CACHE_HOME': '', 'HOME': ''})
    assert r.returncode == 2 and 'neither XDG_CACHE_HOME nor HOME' in r.stderr


@pytest.mark.parametrize('args, code, want', [
    (['--hosts', '8', '--cards', '8'], 3, 'cannot be run here'),
    (['--hosts', '0'], 2, 'hosts'),
    (['--cards', 'x'], 2, 'cards'),
    (['--pairs', '3'], 2, '--pairs is not for bench calibrate'),
])
def test_calibrate_answers_mistakes(tmp_path, args, code, want):
    r = run('bench', 'calibrate', *args, env={'XDG_CACHE_HOME': str(tmp_path)})
    assert r.returncode == code and want in r.stderr


def test_train_uses_it(cache, tiny, tmp_path):
    home, said = cache
    args = ['train', *tiny, '--steps', '2', '--hosts', '1', '--cards-per-host', '2', '--data-parallel', '2', '--json']
    r = run(*args, '--run', tmp_path / 'a', env={'XDG_CACHE_HOME': str(home)})
    assert r.returncode == 0, r.stderr
    assert events(r.stdout)[-1]['collectives_chosen_by'] == 'calibration'
    assert json.loads((tmp_path / 'a' / 'calibration.json').read_text())['when'] == said['when']
    r = run(*args, '--run', tmp_path / 'b', env={'XDG_CACHE_HOME': str(tmp_path / 'none')})
    assert events(r.stdout)[-1]['collectives_chosen_by'] == 'topology' and not (tmp_path / 'b' / 'calibration.json').exists()
    a, b = events(r.stdout), json.loads((tmp_path / 'a' / 'metrics.jsonl').read_text().splitlines()[-1])
    assert b['loss'] == pytest.approx(a[-1]['train_loss'], rel=1e-4)


@pytest.mark.skipif(not shutil.which('mpirun.openmpi'), reason='mpirun.openmpi is not installed')
def test_under_mpirun(tmp_path):
    r = subprocess.run(['mpirun.openmpi', '--allow-run-as-root', '--oversubscribe', '-x', f'XDG_CACHE_HOME={tmp_path}', '-np', '2', SUPERNODE,
                        'bench', 'calibrate', '--json'], capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stderr
    (said,) = events(r.stdout)
    assert (said['hosts'], said['cards']) == (1, 2) and said['samples'] >= 20
    assert json.loads(explain(tmp_path).stdout)['model']['from'] == 'calibration', 'kept under the name that others look for'


def test_check_runs_every_row(tmp_path):
    r = run('bench', 'calibrate', '--hosts', '2', '--cards', '1', '--check', '--json', env={'XDG_CACHE_HOME': str(tmp_path)})
    assert r.returncode == 0, r.stderr
    calibration, check = events(r.stdout)
    assert {c['op'] for c in check['calls']} >= {'all_reduce', 'reduce_scatter', 'all_gather', 'broadcast', 'all_to_all', 'gather', 'scatter'}
    for c in check['calls']:
        assert c['regret'] >= 0 and c['best_ns'] <= c['chosen_ns'] and (c['best'] != c['chosen'] or c['regret'] == 0)
    assert check['regret_mean'] == pytest.approx(sum(c['regret'] for c in check['calls']) / len(check['calls']), rel=1e-3)
    assert check['met'] == (check['regret_mean'] <= 0.05)
