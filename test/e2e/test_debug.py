# SPDX-License-Identifier: Apache-2.0
"""supernode debug: who waits for whom, while the job hangs and after everything was killed."""
import json, os, signal, time

import pytest

from conftest import run, start
from test_train import ISOLATIONS, step_count, wait_for, workers_of

FOUR = ['--hosts', '2', '--cards-per-host', '2', '--tensor', '2', '--data-parallel', '2', '--pipeline', '1']


def debug(run_dir, *flags):
    r = run('debug', run_dir, '--json', *flags)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def end(process, workers):
    """Kill a job whose launcher may be stopped."""
    process.kill()
    process.wait()
    for pid in workers.values():
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass


@pytest.mark.parametrize('isolation', ISOLATIONS)
def test_stopped_worker_is_named(isolation, tiny, tmp_path):
    p = start('train', *tiny, *FOUR, '--steps', '100000', '--detection', '60', '--isolation', isolation, '--run', tmp_path / 'r', cwd=tmp_path)
    workers = {}
    try:
        wait_for(lambda: step_count(tmp_path / 'r') >= 5)
        workers = workers_of(tmp_path / 'r')
        os.kill(p.pid, signal.SIGSTOP)       # it would start the job again
        os.kill(workers[2], signal.SIGSTOP)
        seen = wait_for(lambda: next((d for d in [debug(tmp_path / 'r')] if
                                      {w['rank'] for w in d['waits']} == {0, 1, 3} and d['ranks'][2]['state'] == 'stopped'), None))
        assert seen['causes'] == [2]
        assert seen['ranks'][2]['host'] == 'h1' and seen['ranks'][2]['pid'] == workers[2]
        words = run('debug', tmp_path / 'r').stdout
        assert 'rank 2 (h1) is stopped' in words and 'for rank 2 (h1)' in words and 'it last finished' in words
    finally:
        end(p, workers)


@pytest.mark.parametrize('isolation', ISOLATIONS)
def test_after_kill_9_of_everything(isolation, tiny, tmp_path):
    p = start('train', *tiny, *FOUR, '--steps', '100000', '--isolation', isolation, '--run', tmp_path / 'r', cwd=tmp_path)
    wait_for(lambda: step_count(tmp_path / 'r') >= 5)
    p.kill()
    p.wait()
    wait_for(lambda: not workers_of(tmp_path / 'r'), seconds=5)
    seen = debug(tmp_path / 'r', '--last', '50', '--trace', tmp_path / 'trace.json')
    assert not seen['live'] and seen['world'] == 4
    for rank in seen['ranks']:
        # one that saw a peer die first may have left by itself
        assert rank['state'] in ('dead', 'left') and rank['step'] >= 4 and len(rank['operations']) >= 50
        assert any(op['state'] == 'done' and op['group'].startswith('tensor') for op in rank['operations'] if 'group' in op)
    trace = json.loads((tmp_path / 'trace.json').read_text())['traceEvents']
    slices = [e for e in trace if e['ph'] == 'X']
    assert {e['pid'] for e in slices} == {0, 1, 2, 3} and all(e['dur'] >= 0 for e in slices)
    lanes = {}
    for e in sorted(slices, key=lambda e: e['ts']):
        lane = lanes.setdefault((e['pid'], e['tid']), [])
        assert not lane or lane[-1] <= e['ts'] + 1e-3       # slices of one track do not overlap
        lane.append(e['ts'] + e['dur'])
    words = run('debug', tmp_path / 'r', '--last', '3').stdout
    assert 'last operations' in words


def test_killed_worker_stands_in_the_attempt_before(tiny, tmp_path):
    p = start('train', *tiny, *FOUR, '--steps', '60', '--isolation', 'groups', '--run', tmp_path / 'r', cwd=tmp_path)
    wait_for(lambda: step_count(tmp_path / 'r') >= 5)
    os.kill(workers_of(tmp_path / 'r')[3], signal.SIGKILL)
    p.communicate(timeout=120)
    assert p.returncode == 0
    assert debug(tmp_path / 'r')['verdict'] == 'every rank has left in order\n'
    before = debug(tmp_path / 'r', '--previous')
    assert before['ranks'][3]['state'] == 'dead' and before['causes'] == [3]
    assert all(before['ranks'][r]['state'] == 'left' and 'rank 3' in before['ranks'][r]['left_with'] for r in (0, 1, 2))


def test_nothing_to_read(tmp_path):
    r = run('debug', cwd=tmp_path)
    assert r.returncode == 2 and 'runs/latest' in r.stderr
    (tmp_path / 'r').mkdir()
    (tmp_path / 'r' / 'recorder-0.bin').write_bytes(b'x' * 100)
    r = run('debug', tmp_path / 'r')
    assert r.returncode == 2 and 'recorder-0.bin' in r.stderr
    (tmp_path / 'r' / 'recorder-0.bin').unlink()
    os.mkfifo(tmp_path / 'r' / 'recorder-0.bin')
    assert run('debug', tmp_path / 'r', timeout=10).returncode == 2
