# SPDX-License-Identifier: Apache-2.0
"""A run's directory: who may use it, what a resume finds there, and what is said about it."""
import json, os, pathlib, signal

from conftest import events, metrics, run, start
from test_train import step_count, wait_for


def test_a_directory_in_use_is_refused(tiny, tmp_path):
    p = start('train', *tiny, '--steps', '100000', '--run', tmp_path / 'r', cwd=tmp_path)
    try:
        wait_for(lambda: step_count(tmp_path / 'r') >= 2)
        r = run('train', *tiny, '--steps', '2', '--run', tmp_path / 'r', cwd=tmp_path)
        assert r.returncode == 2 and 'in use' in r.stderr, r.stderr
    finally:
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=60)


def test_a_used_directory_wants_resume(tiny, tmp_path):
    """A new run would leave the old one's newer checkpoints to be taken for its own."""
    assert run('train', *tiny, '--steps', '4', '--run', tmp_path / 'r', cwd=tmp_path).returncode == 0
    before = (tmp_path / 'r' / 'metrics.jsonl').read_text()
    r = run('train', *tiny, '--steps', '2', '--run', tmp_path / 'r', cwd=tmp_path)
    assert r.returncode == 2 and 'step 4' in r.stderr and '--resume' in r.stderr, r.stderr
    assert (tmp_path / 'r' / 'metrics.jsonl').read_text() == before
    r = run('train', *tiny, '--steps', '2', '--checkpoint-dir', tmp_path / 'r' / 'checkpoints', cwd=tmp_path)
    assert r.returncode == 2 and 'step 4' in r.stderr, r.stderr


def test_latest_is_a_run_that_trained(tiny, tmp_path):
    assert run('train', *tiny, '--steps', '2', cwd=tmp_path).returncode == 0
    trained = os.readlink(tmp_path / 'runs' / 'latest')
    env = {'PATH': '/nonexistent'}
    r = run('train', *tiny, '--steps', '2', '--memory', '1KiB', cwd=tmp_path, env=env)
    assert r.returncode == 3, r.stderr
    r = run('train', *tiny, '--steps', '2', '--isolation', 'none', cwd=tmp_path)
    assert r.returncode == 2, r.stderr
    assert os.readlink(tmp_path / 'runs' / 'latest') == trained
