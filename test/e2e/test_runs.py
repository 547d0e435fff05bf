# SPDX-License-Identifier: Apache-2.0
"""A run's directory: who may use it, what a resume finds there, and what is said about it."""
import json, os, pathlib, signal, subprocess

import pytest

from conftest import SUPERNODE, events, metrics, run, start
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


def test_interrupt_says_what_is_saved_and_a_line_that_works(tiny, tmp_path):
    """The line to go on with needs no job file and no flags, whatever the run was started with."""
    p = start('train', *tiny, '--steps', '100000', '--tensor', '2', '--data-parallel', '1', '--pipeline', '1', '--run', 'a b', cwd=tmp_path)
    wait_for(lambda: step_count(tmp_path / 'a b') >= 5)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 130
    step = max(int(d.name[5:]) for d in (tmp_path / 'a b' / 'checkpoints').iterdir())
    line = err.splitlines()[-1]
    assert f'step {step} ' in line
    words = line.split('supernode train ')[-1]
    assert words == "--resume --run 'a b'"
    r = run('train', '--resume', '--run', 'a b', '--steps', step + 2, '--json', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    rows = [e for e in events(r.stdout) if e['event'] == 'step']
    assert [e['step'] for e in rows] == [step + 1, step + 2]
    assert events(r.stdout)[-1]['tensor'] == 2


def test_interrupted_before_any_checkpoint(tiny, tmp_path):
    p = start('train', *tiny, '--steps', '100000', '--hidden', '256', '--batch-size', '64', '--card', 'ref', '--run', 'r', cwd=tmp_path)
    wait_for(lambda: (tmp_path / 'r' / 'plan.txt').exists())
    wait_for(lambda: any((tmp_path / 'r').glob('rank-*.log')))
    p.send_signal(signal.SIGINT)
    p.send_signal(signal.SIGINT)
    wait_for(lambda: p.poll() is not None or p.send_signal(signal.SIGINT))
    out, err = p.communicate(timeout=60)
    assert p.returncode == 130, err
    assert 'no checkpoint yet' in err, err


def test_resume_without_a_run(tmp_path):
    r = run('train', '--resume', cwd=tmp_path)
    assert r.returncode == 2 and 'no run to resume' in r.stderr
    r = run('train', '--resume', '--run', 'nope', cwd=tmp_path)
    assert r.returncode == 2 and 'nope does not exist' in r.stderr


def test_resume_with_a_larger_split(tiny, tmp_path):
    first = run('train', *tiny, '--steps', '2', '--tensor', '1', '--pipeline', '1', '--data-parallel', '1', cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    r = run('train', '--resume', '--steps', '4', '--tensor', '2', '--data-parallel', '2', '--json', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    assert events(r.stdout)[-1]['tensor'] == 2


def test_a_run_is_found_from_everywhere(tiny, tmp_path):
    (tmp_path / 'elsewhere').mkdir()
    assert run('train', *tiny, '--steps', '2', '--run', 'r', '--checkpoint-dir', 'c', cwd=tmp_path).returncode == 0
    assert run('train', *tiny, '--steps', '2', '--run', 's', cwd=tmp_path).returncode == 0
    for name in 'rs':
        g = run('generate', tmp_path / name, '--bytes', '8', cwd=tmp_path / 'elsewhere')
        assert g.returncode == 0, g.stderr
        r = run('train', '--resume', '--run', tmp_path / name, '--steps', '3', cwd=tmp_path / 'elsewhere')
        assert r.returncode == 0, r.stderr
        assert [row['step'] for row in metrics(tmp_path / name)] == [1, 2, 3]
    (tmp_path / 's').rename(tmp_path / 'moved')
    assert run('generate', tmp_path / 'moved', '--bytes', '8', cwd=tmp_path).returncode == 0


def test_generate_writes_every_byte(tiny, tmp_path):
    """An untrained model writes any byte, NUL too; temperature 0 is the likeliest one, always."""
    assert run('train', *tiny, '--steps', '1', '--run', 'r', cwd=tmp_path).returncode == 0
    for seed in range(4):
        text = subprocess.run([SUPERNODE, 'generate', 'r', '--bytes', '300', '--temperature', '100', '--prompt', 'ab', '--seed', str(seed)],
                              cwd=tmp_path, capture_output=True).stdout
        assert len(text) == 2 + 300 + 1
    cold = [run('generate', 'r', '--bytes', '40', '--temperature', '0', '--seed', s, cwd=tmp_path) for s in (1, 2)]
    assert cold[0].returncode == 0 and cold[0].stdout == cold[1].stdout, cold[0].stderr


ROOT_USER = os.geteuid() == 0


@pytest.mark.skipif(not ROOT_USER, reason='a full disk is made with a small tmpfs, which needs root')
def test_a_lost_checkpoint_is_said_at_once(tiny, tmp_path):
    """Training goes on with the checkpoint before; whoever watches is told, and so is the report."""
    script = f'mount -t tmpfs -o size=1200k none {tmp_path} && "$@"; echo rc $?; cat {tmp_path}/r/report.html'
    r = subprocess.run(['unshare', '--mount', 'sh', '-c', script, 'sh', SUPERNODE, 'train', *tiny, '--checkpoint-every', '20', '--steps',
                        '400', '--run', tmp_path / 'r'], capture_output=True, text=True, timeout=60)
    assert 'rc 3' in r.stdout
    notes = [line for line in r.stderr.splitlines() if line.startswith('checkpoint not written')]
    assert notes and 'No space left' in notes[0] and 'going on' in notes[0], r.stderr
    assert 'during saving a checkpoint' in r.stderr


def test_a_bad_checkpoint_is_said(tiny, tmp_path):
    assert run('train', *tiny, '--steps', '8', '--checkpoint-every', '4', '--run', 'r', cwd=tmp_path).returncode == 0
    steps = sorted((tmp_path / 'r' / 'checkpoints').iterdir())
    os.truncate(next(steps[-1].glob('*.safetensors')), 100)
    r = run('train', '--resume', '--run', 'r', '--steps', '200', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    assert any(steps[-1].name in line and steps[-2].name in line for line in r.stderr.splitlines()), r.stderr


def test_resume_with_nothing_left_to_do(tiny, tmp_path):
    assert run('train', *tiny, '--steps', '4', '--run', 'r', cwd=tmp_path).returncode == 0
    r = run('train', '--resume', '--run', 'r', '--steps', '3', cwd=tmp_path)
    assert r.returncode == 0 and 'nothing more' in r.stdout, r.stdout


def test_closed_and_full_outputs(tiny, tmp_path):
    """A run's files never become its stdout or stderr; an answer that was not written is no success."""
    def closed():
        os.close(1), os.close(2)
    p = subprocess.Popen([SUPERNODE, 'train', *tiny, '--steps', '100000', '--run', 'r'], cwd=tmp_path, preexec_fn=closed)
    wait_for(lambda: step_count(tmp_path / 'r') >= 2)
    held = [os.readlink(f'/proc/{p.pid}/fd/{fd}') for fd in (1, 2)]
    p.send_signal(signal.SIGINT)
    assert p.wait(timeout=60) == 130
    assert held == ['/dev/null', '/dev/null']
    with open('/dev/full', 'w') as full:
        for words in (['topo'], ['plan', *tiny], ['generate', 'r'], ['train', '--resume', '--run', 'r', '--steps', '1'], ['--help']):
            r = subprocess.run([SUPERNODE, *words], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            assert r.returncode == 1 and 'space' in r.stderr or 'disk' in r.stderr, (words, r.stderr)


def test_wrong_flags_start_nothing(tiny, tmp_path):
    for flags in (['--isolation', 'none'], ['--retries', 'many'], ['--retries', '-1']):
        r = run('train', *tiny, *flags, cwd=tmp_path)
        assert r.returncode == 2 and len(r.stderr.splitlines()) == 1 and flags[1] in r.stderr, r.stderr
        assert not (tmp_path / 'runs').exists()


def test_nohup_is_heeded(tiny, tmp_path):
    p = subprocess.Popen([SUPERNODE, 'train', *tiny, '--steps', '300', '--run', 'r'], cwd=tmp_path, stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    wait_for(lambda: step_count(tmp_path / 'r') >= 2)
    p.send_signal(signal.SIGHUP)
    assert p.wait(timeout=60) == 0


@pytest.mark.parametrize('name', ['file', 'x' * 300])
def test_a_run_that_cannot_be_a_directory(name, tiny, tmp_path):
    (tmp_path / 'file').write_text('')
    r = run('train', *tiny, '--steps', '2', '--run', tmp_path / name, cwd=tmp_path)
    assert r.returncode == 2, r.stderr
    assert len(r.stderr.strip().splitlines()) == 1 and name[:60] in r.stderr
