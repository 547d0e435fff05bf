# SPDX-License-Identifier: Apache-2.0
"""Foresight as a user sees it: plans, runs, truth, claims, and what is refused."""
import json, time
import xml.dom.minidom

import pytest

from conftest import ROOT, run

CLUSTER = ROOT / 'examples' / 'clusters' / 'h100-1024.yaml'


def asked(*args):
    r = run('sim', *args, '--json')
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def test_plan_of_a_cluster_file():
    began = time.monotonic()
    r = run('plan', '--model', 'gpt3-175b', '--cluster', CLUSTER, '--batch', 1536)
    assert r.returncode == 0, r.stderr
    assert time.monotonic() - began < 10, 'the search itself takes milliseconds'
    for word in ('gpt3-175b', '1024 x h100', 'plan ', 'runners-up', 'memory', 'parallelism: {tensor: ', 'candidates in'):
        assert word in r.stdout
    same = asked('plan', '--model', 'gpt3-175b', '--card', 'h100', '--cards', 1024, '--batch', 1536)
    best = same['best']
    l = best['layout']
    assert l['tensor'] * l['pipeline'] * l['data'] * l['context'] <= 1024
    assert abs(sum(best['parts_s'].values()) / best['step_s'] - 1) < 1e-6
    assert .3 < best['peak_share'] < .7
    assert all(o['step_s'] >= best['step_s'] for o in same['others'])


def test_a_million_cards_in_seconds():
    began = time.monotonic()
    a = asked('plan', '--model', 'gpt-1t', '--cards', 1048576, '--batch', 65536)
    assert time.monotonic() - began < 10
    assert a['cards'] == 1048576 and a['best']['step_s'] > 0


def test_a_run_of_days(tmp_path):
    page = tmp_path / 'run.html'
    ask = ['run', '--model', 'llama3-405b', '--cards', 16384, '--batch', 2048, '--days', 54, '--html', page]
    a = asked(*ask)
    assert a == {**asked(*ask), 'seconds': a['seconds']}, 'same seed, same run'
    assert a['run']['useful'] > .99 and a['run']['availability'] > .9995
    assert 500 < a['run']['failures'] < 1000
    others = {r['recovery']: r['useful'] for r in a['recoveries']}
    assert others['supernode'] == max(others.values())
    text = page.read_text()
    xml.dom.minidom.parseString(text.split('>', 1)[1])
    assert '<svg' in text and 'http' not in text.replace('http-equiv', '')
    assert 'The pipeline' in text and 'What fills' in text and 'More and fewer cards' in text


def test_a_trace_of_the_step(tmp_path):
    r = run('sim', 'plan', '--model', 'gpt3-175b', '--cards', 1024, '--trace', tmp_path / 't.json', '--json')
    best = json.loads(r.stdout)['best']
    events = [e for e in json.loads((tmp_path / 't.json').read_text())['traceEvents'] if e['ph'] == 'X']
    stages = best['layout']['pipeline']
    micros = 1536 // (best['layout']['data'] * best['layout']['micro_batch'])
    assert {e['tid'] for e in events} == set(range(stages))
    assert sum(e['cat'] in ('forward', 'backward') for e in events) == 2 * stages * micros
    ends = {}
    for e in events:
        assert e['ts'] >= ends.get(e['tid'], 0) - .01
        ends[e['tid']] = e['ts'] + e['dur']


def test_truth_and_claims():
    t = asked('truth')
    assert len(t['rows']) > 70 and t['means']["SC'21 table 1"]['unseen'] < .05
    assert sum(r['fit'] for r in t['rows']) == 7
    claims = asked('claims')
    assert len(claims) == 8
    for c in claims:
        assert c['verdict'] in ('supported', 'not supported') and c['assumed'] and c['model'] and c['decides']
    assert 'assumed' in run('sim', 'claims').stdout


@pytest.mark.parametrize('name', ['h100-1024', 'dgx-a100-oversubscribed', 'dragonfly-1024', 'torus-3d-512', 'super-node-384',
                                  'three-tier-reference', 'h100-16x8'])
def test_clusters_that_ship(name):
    """Each can be shown and planned for, and its links say what its topology is."""
    file = ROOT / 'examples' / 'clusters' / f'{name}.yaml'
    assert run('topo', file).returncode == 0
    links = asked('links', '--cluster', file)
    plan = asked('plan', '--model', 'gpt-22b', '--cluster', file, '--batch', 512)
    assert plan['cards'] == links['cards'] and plan['best']['step_s'] > 0
    ratio = links['all_to_all_s'] / links['all_reduce_s']
    assert (ratio > 1.5) == (name in ('dgx-a100-oversubscribed', 'dragonfly-1024', 'torus-3d-512', 'three-tier-reference'))


@pytest.mark.parametrize('args,words', [
    (['plan', '--model', 'gpt3-175', '--cards', 8], 'gpt3-175b'),
    (['plan', '--cards', 8], '--model is missing'),
    (['plan', '--model', 'gpt3-175b'], '--cluster FILE, or --card KIND --cards N'),
    (['plan', '--model', 'gpt3-175b', '--card', 'abacus', '--cards', 8], 'abacus'),
    (['plan', '--model', 'gpt3-175b', '--cards', 8, '--net', 'fast'], '--net'),
    (['run', '--model', 'gpt3-175b', '--cards', 1024], 'tokens or days'),
    (['run', '--model', 'gpt3-175b', '--cards', 1024, '--days', 1, '--recovery', 'prayer'], 'prayer'),
    (['dream'], 'dream'),
    (['links'], '--cluster FILE'),
    (['links', '--cluster', ROOT / 'examples' / 'clusters' / 'two-hosts.yaml'], "'cpu' are not in the table"),
    (['plan', '--model', 'gpt3-175b', '--cluster', 'no-such.yaml'], 'no-such.yaml'),
])
def test_what_is_refused(args, words):
    r = run('sim', *args)
    assert r.returncode in (1, 2, 3) and words in r.stderr, (r.returncode, r.stderr)


def test_what_does_not_fit():
    r = run('sim', 'plan', '--model', 'gpt-1t', '--cards', 64)
    assert r.returncode == 3 and 'take at least' in r.stderr, r.stderr
