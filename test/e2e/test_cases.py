# SPDX-License-Identifier: Apache-2.0
"""Cases of doc/cases.md that need a whole job: launchers and first ranks that die, deaths during a restart, a small /dev/shm, and the
library inside somebody else's program. The soak runs the unit cases at length."""
import os, pathlib, signal, subprocess, sys

import pytest

from conftest import SUPERNODE, metrics, run, start
from test_train import MPIENV, MPIRUN, ROOT_USER, needs_mpirun, step_count, wait_for, workers_of

BUILD = pathlib.Path(SUPERNODE).parent
FOUR = ['--hosts', '2', '--cards-per-host', '2', '--tensor', '2', '--data-parallel', '2', '--pipeline', '1', '--isolation', 'groups']


def test_a27_the_first_rank_dies(tiny, tmp_path):
    """Rank 0 is a rank like any other: it is named, and the job goes on from the newest checkpoint."""
    p = start('train', *tiny, *FOUR, '--steps', '200', '--checkpoint-every', '10', '--run', tmp_path / 'r', cwd=tmp_path)
    wait_for(lambda: step_count(tmp_path / 'r') >= 15)
    os.kill(workers_of(tmp_path / 'r')[0], signal.SIGKILL)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0, err
    line = next(l for l in err.splitlines() if 'SIGKILL' in l)
    assert 'rank 0' in line and 'h0' in line
    assert {row['step'] for row in metrics(tmp_path / 'r')} >= set(range(1, 200))


def newest(run_dir):
    return max(int(d.name.split('-')[1]) for d in (run_dir / 'checkpoints').glob('step-*') if (d / 'manifest.json').exists())


def drop_rows_after(run_dir, step):
    lines = (run_dir / 'metrics.jsonl').read_text().splitlines(keepends=True)
    (run_dir / 'metrics.jsonl').write_text(''.join(lines[:step]))


def test_a27_the_launcher_dies_and_is_started_again_at_once(tiny, tmp_path):
    """Nothing of the old job is in the new one's way, not even while its workers are still dying."""
    flags = [*tiny, *FOUR, '--checkpoint-every', '5', '--run', tmp_path / 'r']
    p = start('train', *flags, '--steps', '100000', cwd=tmp_path)
    wait_for(lambda: step_count(tmp_path / 'r') >= 12)
    p.kill()
    p.wait()
    drop_rows_after(tmp_path / 'r', newest(tmp_path / 'r') - 2)  # as if it had died before it wrote them
    last = newest(tmp_path / 'r') + 8
    r = run('train', *flags, '--steps', last, '--resume', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    steps = [row['step'] for row in metrics(tmp_path / 'r')]
    assert steps[-1] == last and set(steps) == set(range(1, last + 1))


@needs_mpirun
def test_a27_mpirun_dies(tiny, tmp_path):
    """Ranks whose PMIx server is gone end by themselves."""
    p = subprocess.Popen([*MPIRUN, '2', SUPERNODE, 'train', *tiny, '--steps', '100000', '--run', tmp_path / 'r'], cwd=tmp_path, env=MPIENV,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def ranks():
        found = []
        for entry in pathlib.Path('/proc').iterdir():
            try:
                words = (entry / 'cmdline').read_bytes().split(b'\0') if entry.name.isdigit() else []
            except OSError:
                continue
            if words and words[0] == os.fsencode(SUPERNODE) and os.fsencode(str(tmp_path / 'r')) in words:
                found.append(int(entry.name))
        return found
    try:
        wait_for(lambda: step_count(tmp_path / 'r') >= 3)
        assert len(ranks()) == 2
        p.kill()
        p.wait()
        wait_for(lambda: not ranks(), seconds=10)
    finally:
        for pid in ranks():
            os.kill(pid, signal.SIGKILL)


def test_a26_a_second_death_during_the_restart(tiny, tmp_path):
    """One worker is killed; another as soon as the next attempt has started it. The job ends as if nothing had been."""
    flags = [*tiny, *FOUR, '--steps', '120', '--checkpoint-every', '10', '--retries', '5']
    whole = run('train', *flags, '--run', tmp_path / 'whole', cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    p = start('train', *flags, '--run', tmp_path / 'r', cwd=tmp_path)
    wait_for(lambda: step_count(tmp_path / 'r') >= 15)
    first = workers_of(tmp_path / 'r')
    os.kill(first[1], signal.SIGKILL)
    again = wait_for(lambda: next((w for w in [workers_of(tmp_path / 'r')] if w.get(2) not in (None, first[2])), None))
    os.kill(again[2], signal.SIGKILL)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 0, err
    killed = [l for l in err.splitlines() if 'SIGKILL' in l]
    assert any('rank 1' in l for l in killed) and any('rank 2' in l for l in killed), err
    seen = {row['step']: row['loss'] for row in metrics(tmp_path / 'r')}
    assert [seen[row['step']] for row in metrics(tmp_path / 'whole')] == [row['loss'] for row in metrics(tmp_path / 'whole')]


@pytest.mark.skipif(not ROOT_USER, reason='a small /dev/shm is mounted, which needs root')
def test_a20_a_job_with_a_dev_shm_of_one_page(tiny, tmp_path):
    script = 'mount -t tmpfs -o size=4k none /dev/shm && head -c 4096 /dev/zero > /dev/shm/full && exec "$@"'
    r = subprocess.run(['unshare', '--mount', 'sh', '-c', script, 'sh', SUPERNODE, 'train', *tiny, *FOUR, '--steps', '5', '--run',
                        tmp_path / 'r'], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert r.returncode == 0, r.stderr
    assert step_count(tmp_path / 'r') == 5


def test_f7_the_library_leaves_the_arithmetic_of_its_host_alone():
    """Subnormals of the program that loads the library are what they were, in threads too, after calls into it."""
    library = BUILD / 'libsupernode.so'
    code = f'''
import ctypes, threading
def small():
    x = 1e-310
    assert x / 10 > 0 and 5e-324 > 0 and x * 0.5 != 0
small()
lib = ctypes.CDLL({str(library)!r})
small()
boot = ctypes.c_void_p()
assert lib.sn_boot_single(ctypes.byref(boot)) == 0
lib.sn_fold_kernels()
lib.sn_boot_free(boot)
small()
t = threading.Thread(target=small)
t.start()
t.join()
small()
'''
    r = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True, timeout=60)
    assert r.returncode == 0, r.stderr


@pytest.mark.soak
@pytest.mark.parametrize('name, times', [('maps', 2), ('kill', 8), ('order', 30), ('buffers', 2), ('values', 1), ('time', 1), ('host', 3)])
def test_soak(name, times):
    r = subprocess.run([BUILD / f'test_cases_{name}', str(times)], capture_output=True, text=True, errors='replace', timeout=1800)
    assert r.returncode == 0, (r.stdout + r.stderr)[-4000:]
