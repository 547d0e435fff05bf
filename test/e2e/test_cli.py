# SPDX-License-Identifier: Apache-2.0
"""The command line: help teaches, mistakes are answered, the tables give man page and completion."""
import json, shutil, subprocess

import pytest

from conftest import SUPERNODE, run

VERBS = ['train', 'plan', 'coll', 'topo', 'generate', 'export', 'tokenize', 'bench', 'man', 'completion']


def test_help_lists_every_verb():
    r = run('--help')
    assert r.returncode == 0
    for verb in VERBS:
        assert f'  {verb} ' in r.stdout
    assert 'worker' not in r.stdout


@pytest.mark.parametrize('verb', VERBS)
def test_verb_help_has_an_example(verb):
    r = run(verb, '--help')
    assert r.returncode == 0
    assert f'usage: supernode {verb}' in r.stdout
    assert f'supernode {verb}' in r.stdout.split('\n', 2)[2]


def test_no_verb_is_usage():
    r = run()
    assert r.returncode == 2 and 'usage:' in r.stderr


@pytest.mark.parametrize('args, want', [
    (['trian'], "unknown verb 'trian', did you mean train?"),
    (['train', '--batch-sise', '3'], 'unknown flag --batch-sise, did you mean --batch-size?'),
    (['train', '--steps'], '--steps needs a value'),
    (['train', '--json=1'], '--json takes no value'),
    (['train', '-x'], 'flags begin with --'),
    (['train', '--steps', '5x', '--data', 'x'], "steps is '5x'"),
    (['worker'], 'not by hand'),
])
def test_mistakes(args, want):
    r = run(*args)
    assert r.returncode == 2
    assert want in r.stderr
    assert len(r.stderr.strip().splitlines()) == 1


def test_underscores_and_dashes_are_the_same(tiny):
    r = run('plan', *tiny, '--batch_size', '16', '--gradient_accumulation=2')
    assert r.returncode == 0, r.stderr


def test_dotted_keys_are_flags(tiny):
    r = run('plan', *tiny, '--parallelism.tensor', '2', '--optimizer.lr', '1e-4')
    assert r.returncode == 0, r.stderr


def test_coll_explain_prices_what_fits_and_chooses_the_least():
    r = run('coll', 'explain', '--op', 'all_reduce', '--bytes', '8M', '--hosts', '2', '--cards', '4', '--json')
    assert r.returncode == 0, r.stderr
    told = json.loads(r.stdout)
    fits = [c for c in told['candidates'] if c['fits']]
    times = [c['predicted_ns'] for c in fits]
    assert (told['members'], told['hosts'], told['count']) == (8, 2, 2 << 20)
    assert {'hierarchical', 'ring', 'rabenseifner', 'double_tree', 'torus'} <= {c['algorithm'] for c in fits}
    assert times == sorted(times) and told['choice'] == fits[0]['algorithm']
    assert [c['algorithm'] for c in fits if c['chosen']] == [told['choice']]
    assert [c['why'] for c in told['candidates'] if c['algorithm'] == 'flat'] == ['needs one host']


def test_coll_explain_measures_every_row_that_fits():
    r = run('coll', 'explain', '--op', 'all_gather', '--bytes', '64K', '--hosts', '2', '--cards', '2', '--measure', '--json')
    assert r.returncode == 0, r.stderr
    told = json.loads(r.stdout)
    fits = [c for c in told['candidates'] if c['fits']]
    assert len(fits) > 2 and all(c['measured_ns'] > 0 for c in fits)
    assert told['best'] == min(fits, key=lambda c: c['measured_ns'])['algorithm']
    assert told['regret'] >= 0 and (told['best'] != told['choice'] or told['regret'] == 0)
    text = run('coll', 'explain', '--op', 'broadcast', '--bytes', '1K', '--hosts', '1', '--cards', '2', '--measure').stdout
    assert 'measured' in text and '\nregret  ' in text


def test_coll_explain_answers_mistakes():
    assert run('coll', 'explain', '--measure', '--cluster', 'examples/clusters/two-hosts.yaml').returncode == 3
    assert 'two cards' in run('coll', 'explain', '--measure', '--hosts', '1', '--cards', '1').stderr
    assert 'cannot be run here' in run('coll', 'explain', '--measure', '--hosts', '16', '--cards', '4').stderr
    assert 'broadcast' in run('coll', 'explain', '--op', 'shout').stderr
    assert run('coll', 'explain', '--bytes', 'many').returncode == 2
    assert run('coll').returncode == 2
    assert run('coll', 'explain', '--cluster', 'no-such.yaml').returncode == 2
    assert run('coll', 'explain', '--hosts', '99', '--cluster', 'examples/clusters/two-hosts.yaml').returncode == 3
    assert run('coll', 'explain', '--dtype', 'u8').returncode == 3
    text = run('coll', 'explain', '--op', 'broadcast', '--bytes', '64K', '--hosts', '4', '--cards', '2').stdout
    assert '* ' in text and 'binomial' in text and 'chosen' in text


def test_version():
    assert run('--version').stdout.startswith('supernode ')


def test_man_page_is_clean():
    r = run('man')
    assert r.returncode == 0 and '.Sh EXIT STATUS' in r.stdout
    if shutil.which('mandoc'):
        lint = subprocess.run(['mandoc', '-T', 'lint', '-W', 'error'], input=r.stdout, text=True, capture_output=True)
        assert lint.returncode == 0, lint.stdout


def test_completion_is_valid_bash():
    r = run('completion')
    script = r.stdout + f'\nCOMP_WORDS=(supernode tr); COMP_CWORD=1; _supernode; echo "${{COMPREPLY[@]}}"\n' \
                        'COMP_WORDS=(supernode train --batch); COMP_CWORD=2; _supernode; echo "${COMPREPLY[@]}"\n'
    out = subprocess.run(['bash', '-c', script], capture_output=True, text=True)
    assert out.returncode == 0, out.stderr
    assert out.stdout.splitlines() == ['train', '--batch-size']
