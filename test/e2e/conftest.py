# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests share: the command, a text, running and reading it."""
import json, os, pathlib, subprocess, sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUPERNODE = os.environ.get('SUPERNODE', str(ROOT / 'build' / 'supernode'))
GOLDEN = ROOT / 'test' / 'golden'


def pytest_configure(config):
    config.addinivalue_line('markers', 'soak: longer than the usual run; make soak')


def run(*args, cwd=None, timeout=120, env=None, stdin=None):
    """The finished process of `supernode ARGS`."""
    return subprocess.run([SUPERNODE, *map(str, args)], cwd=cwd, timeout=timeout, env={**os.environ, **(env or {})},
                          capture_output=True, text=True, errors='replace', stdin=stdin or subprocess.DEVNULL)


def start(*args, cwd=None, env=None, **more):
    return subprocess.Popen([SUPERNODE, *map(str, args)], cwd=cwd, env={**os.environ, **(env or {})}, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, errors='replace', **more)


def events(text):
    """The JSON objects of --json output."""
    return [json.loads(line) for line in text.splitlines() if line.startswith('{')]


def metrics(run_dir):
    return [json.loads(line) for line in (pathlib.Path(run_dir) / 'metrics.jsonl').read_text().splitlines()]


@pytest.fixture(scope='session')
def text(tmp_path_factory):
    """About 60 KB of sentences that a small model can learn."""
    words = ("the a small large red blue cat dog bird tree river runs sees finds likes and "
             "then but over under now").split()
    state, out = 1, []
    for i in range(12000):
        state = (state * 1103515245 + 12345) & 0x7fffffff
        out.append(words[state >> 8 & 15] if i % 9 else words[16 + (state >> 8) % 5] + '.\n')
    path = tmp_path_factory.mktemp('text') / 'text.txt'
    path.write_text(' '.join(out))
    return path


TINY = ['--layers', '2', '--hidden', '32', '--heads', '4', '--sequence', '32', '--batch-size', '8', '--lr', '3e-3',
        '--warmup', '2', '--checkpoint-every', '0', '--seed', '3']


@pytest.fixture
def tiny(text):
    """Flags of a job that trains in about a second."""
    return [*TINY, '--data', str(text)]
