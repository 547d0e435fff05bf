# SPDX-License-Identifier: Apache-2.0
"""What tool/rdma is made of, without its machines: the program for two of them, the archive, the reasons to skip."""
import importlib.machinery, importlib.util, os, pathlib, shutil, subprocess, sys

import pytest

from conftest import ROOT, SUPERNODE

BUILD = pathlib.Path(SUPERNODE).parent
PAIR = BUILD / 'test' / 'rdma' / 'test_rdma_pair'


@pytest.fixture
def tool():
    loader = importlib.machinery.SourceFileLoader('rdma', str(ROOT / 'tool' / 'rdma'))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader('rdma', loader))
    loader.exec_module(module)
    return module


def machine(number, case, *more):
    return subprocess.Popen([PAIR, str(number), case, '--server', '127.0.0.1', '--transports', 'tcp', *more],
                            stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize('case', ['messages', 'remap', 'collectives', 'killed'])
def test_pair(case):
    """Two processes for the machines, tcp for the verbs: the cases hold there as well."""
    both = [machine(1, case), machine(0, case)]
    said = [m.communicate(timeout=60)[1] for m in both]
    assert [m.returncode for m in both] == [0, 0], said
    if case == 'killed':
        assert all('rank 3 (m1) ' in text for text in said)


def test_pair_alone():
    """A machine that is alone says so and fails."""
    m = machine(0, 'messages', '--within', '1')
    assert 'did not all come' in m.communicate(timeout=30)[1] and m.returncode == 1


def test_skip():
    """Without QEMU: a sentence that names the package, and the exit status for it."""
    r = subprocess.run([sys.executable, ROOT / 'tool' / 'rdma', BUILD], env={**os.environ, 'PATH': ''}, capture_output=True, text=True)
    assert r.returncode == 77 and 'package qemu-system-x86' in r.stdout and r.stdout.endswith('0 passed, 0 failed, 1 skipped\n')


def job(name, over='verbs', machine='both'):
    return [machine, name, '60', over, 'true']


class Ended:
    def __init__(self, number, ended, running=''):
        self.number, self.ended, self.running, self.log, self.lose = number, ended, running, {}, None


def test_verdicts(tool, capsys):
    """A job passes when both machines say so and it went over verbs, and in no other case."""
    jobs = [job(n) for n in ('good', 'status', 'silent', 'late', 'cut', 'unreached')] + [job('any', 'any', '0')]
    a = Ended(0, {'good': (0, 1, 9), 'status': (0, 1, 9), 'silent': (0, 1, 9), 'late': (0, 1, 9), 'cut': (0, 1, 9), 'any': (0, 1, 0)})
    b = Ended(1, {'good': (0, 1, 9), 'status': (3, 1, 9), 'silent': (0, 1, 0), 'late': (137, 60, 9)}, 'cut')
    assert tool.report([a, b], jobs, '') == {'passed': 2, 'failed': 5}
    said = {line.split()[2]: line for line in capsys.readouterr().out.splitlines()}
    assert said['good'].startswith('passed') and said['any'].startswith('passed')
    for name, why in (('status', 'exit status 3'), ('silent', 'sent nothing by verbs'), ('late', 'ran past its time'),
                      ('cut', 'was running when it ended'), ('unreached', 'was not reached')):
        assert said[name].startswith('failed') and f'machine 1: {why}' in said[name].replace('passed, but ', '')
    a.lose, b.running = 1, 'cut'                # a machine that a job has asked to lose owes nothing for that job
    assert tool.report([a, b], [job('cut')], '') == {'passed': 1, 'failed': 0}


@pytest.mark.skipif(not shutil.which('busybox'), reason='busybox is not installed')
def test_archive(tool, tmp_path):
    archive = tool.Archive(tmp_path / 'a')
    archive.add('/usr/lib/x/one', b'1' * 4097)
    archive.add('two', b'')
    archive.link('three', 'two')
    archive.close()
    subprocess.run(['busybox', 'cpio', '-idu'], stdin=(tmp_path / 'a').open('rb'), cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / 'usr/lib/x/one').read_bytes() == b'1' * 4097
    assert (tmp_path / 'two').stat().st_size == 0 and (tmp_path / 'three').readlink() == pathlib.Path('two')
