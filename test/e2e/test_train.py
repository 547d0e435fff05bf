# SPDX-License-Identifier: Apache-2.0
"""Training as a user does it: start, watch, interrupt, resume, kill."""
import json, os, pathlib, signal, subprocess, time

import pytest

from conftest import SUPERNODE, events, metrics, run, start

ROOT_USER = os.geteuid() == 0
ISOLATIONS = ['groups'] + (['namespaces'] if ROOT_USER else [])


def losses(run_dir):
    return [row['loss'] for row in metrics(run_dir)]


def wait_for(what, seconds=30):
    """Until what() is true; the condition is polled, its time is only a limit."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError('it never happened')


def workers_of(run_dir):
    """pids (as this namespace sees them) of the workers of a run."""
    found = {}
    for entry in pathlib.Path('/proc').iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / 'cmdline').read_bytes().split(b'\0')
        except OSError:
            continue
        if b'worker' in words[:3] and os.fsencode(str(run_dir)) in words and b'--rank' in words:
            found[int(words[words.index(b'--rank') + 1])] = int(entry.name)
    return found


def step_count(run_dir):
    try:
        return len((pathlib.Path(run_dir) / 'metrics.jsonl').read_text().splitlines())
    except FileNotFoundError:
        return 0


def test_one_card(tiny, tmp_path):
    r = run('train', *tiny, '--steps', '20', '--run', tmp_path / 'r', '--json', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    rows = events(r.stdout)
    steps = [row for row in rows if row.get('event') != 'summary']
    summary = rows[-1]
    assert len(steps) == 20 and summary['event'] == 'summary'
    assert steps[-1]['loss'] < steps[0]['loss'] - 0.5
    assert 0 < summary['validation_loss'] < 6 and 0 < summary['baseline_loss'] < 6
    assert summary['sample']
    html = (tmp_path / 'r' / 'report.html').read_text()
    assert '<svg' in html and 'NaN' not in html and 'http://' not in html.replace('http://www.w3.org', '')
    for name in ('job.yaml', 'topology.yaml', 'plan.txt', 'metrics.jsonl', 'rank-0.log'):
        assert (tmp_path / 'r' / name).exists()


@pytest.mark.parametrize('isolation', ISOLATIONS)
def test_two_hosts_same_losses(isolation, tiny, tmp_path):
    one = run('train', *tiny, '--steps', '8', '--gradient-accumulation', '2', '--run', tmp_path / 'one', cwd=tmp_path)
    assert one.returncode == 0, one.stderr
    many = run('train', *tiny, '--steps', '8', '--gradient-accumulation', '2', '--hosts', '2', '--cards-per-host', '4', '--tensor', '2',
               '--pipeline', '2', '--data-parallel', '2', '--isolation', isolation, '--run', tmp_path / 'many', cwd=tmp_path)
    assert many.returncode == 0, many.stderr
    assert losses(tmp_path / 'many') == pytest.approx(losses(tmp_path / 'one'), rel=1e-5)
    links = json.loads((tmp_path / 'many' / 'links.json').read_text())[0]
    assert links['latency_ns'] > 0 and links['bytes_per_s'] > 0
    assert sum(row['bytes_net'] for row in metrics(tmp_path / 'many')) > 0


def test_progress_lines_without_terminal(tiny, tmp_path):
    r = run('train', *tiny, '--steps', '3', '--run', tmp_path / 'r', cwd=tmp_path)
    assert r.returncode == 0
    assert '\r' not in r.stderr and '\x1b' not in r.stderr
    assert 'tok/s' in r.stderr and 'loss' in r.stderr
    assert 'validation' in r.stdout and 'baseline' in r.stdout and 'report.html' in r.stdout


@pytest.mark.parametrize('number, code', [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupt_and_resume(number, code, tiny, tmp_path):
    """Stopped anywhere, resumed: the losses are those of an unbroken run, bit for bit."""
    split = ['--hosts', '2', '--cards-per-host', '2', '--tensor', '2', '--data-parallel', '2', '--pipeline', '1', '--isolation', 'groups']
    whole = run('train', *tiny, *split, '--steps', '60', '--run', tmp_path / 'whole', cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    p = start('train', *tiny, *split, '--steps', '60', '--run', tmp_path / 'part', cwd=tmp_path)
    wait_for(lambda: step_count(tmp_path / 'part') >= 5)
    p.send_signal(number)
    out, err = p.communicate(timeout=60)
    assert p.returncode == code, err
    assert '--resume' in err
    done = step_count(tmp_path / 'part')
    assert 5 <= done
    r = run('train', *tiny, *split, '--steps', '60', '--run', tmp_path / 'part', '--resume', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    seen = {row['step']: row['loss'] for row in metrics(tmp_path / 'part')}
    assert [seen[row['step']] for row in metrics(tmp_path / 'whole')] == losses(tmp_path / 'whole')


def test_resume_under_another_split(tiny, tmp_path):
    first = run('train', *tiny, '--steps', '6', '--tensor', '2', '--data-parallel', '2', '--pipeline', '1', '--run', tmp_path / 'a', cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    again = run('train', *tiny, '--steps', '12', '--tensor', '1', '--data-parallel', '1', '--pipeline', '2', '--gradient-accumulation', '2',
                '--run', tmp_path / 'a', '--resume', cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert [row['step'] for row in metrics(tmp_path / 'a')][-1] == metrics(tmp_path / 'a')[0]['step'] + 11


def test_killed_worker_is_named_and_the_job_goes_on(tiny, tmp_path):
    flags = [*tiny, '--steps', '400', '--checkpoint-every', '10', '--hosts', '2', '--cards-per-host', '2', '--tensor', '2',
             '--data-parallel', '2', '--pipeline', '1', '--run', tmp_path / 'r', '--isolation', 'groups']
    p = start('train', *flags, cwd=tmp_path)
    wait_for(lambda: step_count(tmp_path / 'r') >= 15)
    os.kill(workers_of(tmp_path / 'r')[3], signal.SIGKILL)
    out, err = p.communicate(timeout=120)
    assert p.returncode == 0, err
    line = next(l for l in err.splitlines() if 'SIGKILL' in l)
    assert 'rank 3' in line and 'h1' in line
    assert {row['step'] for row in metrics(tmp_path / 'r')} >= set(range(1, 400))


def test_retries_used_up(tiny, tmp_path):
    p = start('train', *tiny, '--steps', '100000', '--cards-per-host', '2', '--tensor', '2', '--pipeline', '1', '--data-parallel', '1',
              '--retries', '0', '--run', tmp_path / 'r', cwd=tmp_path)
    wait_for(lambda: step_count(tmp_path / 'r') >= 2)
    os.kill(workers_of(tmp_path / 'r')[1], signal.SIGKILL)
    out, err = p.communicate(timeout=60)
    assert p.returncode == 1 and 'rank 1' in err and 'SIGKILL' in err


@pytest.mark.parametrize('isolation', ISOLATIONS)
def test_killed_launcher_leaves_nothing(isolation, tiny, tmp_path):
    flags = [*tiny, '--steps', '100000', '--hosts', '2', '--cards-per-host', '2', '--tensor', '2', '--data-parallel', '2', '--pipeline', '1',
             '--isolation', isolation, '--run', tmp_path / 'r']
    before = set(os.listdir('/dev/shm'))
    p = start('train', *flags, cwd=tmp_path)
    wait_for(lambda: step_count(tmp_path / 'r') >= 2)
    assert len(workers_of(tmp_path / 'r')) == 4
    p.kill()
    p.wait()
    wait_for(lambda: not workers_of(tmp_path / 'r'), seconds=5)
    assert set(os.listdir('/dev/shm')) <= before
    if ROOT_USER:
        links = subprocess.run(['ip', '-o', 'link'], capture_output=True, text=True).stdout
        assert 'veth' not in links or isolation == 'groups'
    again = run('train', *tiny, '--steps', '2', '--run', tmp_path / 'again', '--isolation', isolation, cwd=tmp_path)
    assert again.returncode == 0, again.stderr


def test_strange_directory(tiny, tmp_path):
    """Spaces, quotes and $() in paths are names, never shell."""
    odd = tmp_path / "a b;$(touch x)'é"
    odd.mkdir()
    data = odd / "données 日本 'x' $(id) ; b.txt"
    data.write_bytes(pathlib.Path(tiny[-1]).read_bytes())
    r = run('train', *tiny, '--data', data.name, '--steps', '3', '--cards-per-host', '2', '--tensor', '2', '--pipeline', '1',
            '--data-parallel', '1', cwd=odd)
    assert r.returncode == 0, r.stderr
    r = run('train', *tiny, '--data', data.name, '--steps', '5', '--cards-per-host', '2', '--tensor', '2', '--pipeline', '1',
            '--data-parallel', '1', '--resume', cwd=odd)
    assert r.returncode == 0, r.stderr
    assert not (odd / 'x').exists() and not (tmp_path / 'x').exists()
    g = run('generate', '--bytes', '20', cwd=odd)
    assert g.returncode == 0 and len(g.stdout) > 20


def test_read_only_directory(tiny, tmp_path):
    if ROOT_USER and not os.path.exists('/bin/mount'):
        pytest.skip('mount is not here')
    if ROOT_USER:
        script = f'mount -t tmpfs -o ro none {tmp_path} && cd {tmp_path} && exec "$@"'
        r = subprocess.run(['unshare', '--mount', 'sh', '-c', script, 'sh', SUPERNODE, 'train', *tiny, '--steps', '2'],
                           capture_output=True, text=True)
    else:
        tmp_path.chmod(0o500)
        r = run('train', *tiny, '--steps', '2', cwd=tmp_path)
    assert r.returncode == 3, r.stderr
    assert 'runs' in r.stderr


@pytest.mark.skipif(not ROOT_USER, reason='a full disk is made with a small tmpfs, which needs root')
def test_full_disk(tiny, tmp_path):
    """A checkpoint that does not fit: said, and the run's end is a failure that names the file."""
    script = f'mount -t tmpfs -o size=200k none {tmp_path} && exec "$@"'
    r = subprocess.run(['unshare', '--mount', 'sh', '-c', script, 'sh', SUPERNODE, 'train', *tiny, '--steps', '3', '--run', tmp_path / 'r'],
                       capture_output=True, text=True, timeout=60)
    assert r.returncode in (1, 3), r.stderr
    assert 'space' in r.stderr or 'full' in r.stderr


def test_checkpoint_of_another_model(tiny, tmp_path):
    assert run('train', *tiny, '--steps', '2', '--run', tmp_path / 'r', cwd=tmp_path).returncode == 0
    r = run('train', *tiny, '--hidden', '64', '--steps', '4', '--run', tmp_path / 'r', '--resume', cwd=tmp_path)
    assert r.returncode in (1, 3)
    assert 'hidden' in r.stderr or 'shape' in r.stderr


def test_corrupt_checkpoint_is_named_and_the_previous_used(tiny, tmp_path):
    assert run('train', *tiny, '--steps', '20', '--checkpoint-every', '5', '--checkpoint-keep', '3', '--run', tmp_path / 'r',
               cwd=tmp_path).returncode == 0
    steps = sorted((tmp_path / 'r' / 'checkpoints').iterdir())
    victim = next(steps[-1].glob('*.safetensors'))
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 4
    victim.write_bytes(data)
    r = run('train', *tiny, '--steps', '24', '--run', tmp_path / 'r', '--resume', cwd=tmp_path)
    assert r.returncode == 0, r.stderr
    said = r.stderr + ''.join(p.read_text() for p in (tmp_path / 'r').glob('rank-*.log'))
    assert steps[-1].name in said and 'checksum' in said


@pytest.mark.skipif(subprocess.run(['which', 'mpirun.openmpi'], capture_output=True).returncode != 0, reason='Open MPI is not installed')
def test_mpirun(tiny, text, tmp_path):
    """The same result under mpirun, with the flags of the issue's example."""
    job = tmp_path / 'model.yaml'
    job.write_text('parallelism: {tensor: 2, pipeline: 1, data: 2}\nmodel: {layers: 2, hidden: 32, heads: 4, sequence: 32}\n'
                   'optimizer: {lr: 3e-3, warmup: 2}\nsteps: 6\nseed: 3\ncheckpoint: {every: 0}\n')
    data = tmp_path / 'data'
    data.mkdir()
    (data / 'a.txt').write_bytes(text.read_bytes())
    env = {**os.environ, 'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}
    r = subprocess.run(['mpirun.openmpi', '--oversubscribe', '-np', '4', SUPERNODE, 'train', '--model_config', job, '--data_path', data,
                        '--batch_size', '8', '--run', tmp_path / 'mpi'], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert r.returncode == 0, r.stderr
    own = run('train', job, '--data', data, '--batch-size', '8', '--run', tmp_path / 'own', cwd=tmp_path)
    assert own.returncode == 0, own.stderr
    assert losses(tmp_path / 'mpi') == losses(tmp_path / 'own')
    assert 'validation' in r.stdout and r.stdout.count('validation') == 1


MPIRUN = ['mpirun.openmpi', '--oversubscribe', '-np']
MPIENV = {**os.environ, 'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}
needs_mpirun = pytest.mark.skipif(subprocess.run(['which', 'mpirun.openmpi'], capture_output=True).returncode != 0,
                                  reason='Open MPI is not installed')


@needs_mpirun
@pytest.mark.parametrize('flags, code, what', [
    (['--model_config', 'nope.yaml'], 2, 'nope.yaml'),
    (['--batch-size', '7', '--tensor', '1', '--pipeline', '1', '--data-parallel', '3'], 3, 'batch_size 7'),
    (['--data', 'missing.txt'], 2, 'missing.txt'),
    (['--run', '/proc/none'], 2, '/proc/none')])
def test_mpirun_bad_job_is_one_sentence(flags, code, what, tiny, tmp_path):
    r = subprocess.run([*MPIRUN, '3', SUPERNODE, 'train', *tiny, '--batch-size', '6', '--steps', '2', *flags], cwd=tmp_path, env=MPIENV,
                       capture_output=True, text=True, timeout=60)
    ours = [line for line in r.stderr.splitlines() if line.startswith('supernode')]
    assert r.returncode == code and len(ours) == 1 and what in ours[0], r.stderr


@needs_mpirun
def test_mpirun_interrupt_json_and_resume(tiny, tmp_path):
    """^C reaches the ranks as SIGTERM; it ends with a checkpoint, and the run goes on from itself."""
    p = subprocess.Popen([*MPIRUN, '2', SUPERNODE, 'train', *tiny, '--steps', '100000', '--run', 'r'], cwd=tmp_path, env=MPIENV,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: step_count(tmp_path / 'r') >= 5)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=60)
    assert p.returncode != 0 and 'newest checkpoint is of step' in err, err
    step = max(int(d.name[5:]) for d in (tmp_path / 'r' / 'checkpoints').iterdir())
    r = subprocess.run([*MPIRUN, '2', SUPERNODE, 'train', '--resume', '--run', 'r', '--steps', str(step + 2), '--json'], cwd=tmp_path,
                       env=MPIENV, capture_output=True, text=True, timeout=60)
    assert r.returncode == 0, r.stderr
    rows = events(r.stdout)
    assert [row['step'] for row in rows if row['event'] == 'step'] == [step + 1, step + 2]
    assert rows[-1]['event'] == 'summary' and 'tok/s' not in r.stderr
