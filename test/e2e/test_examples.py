# SPDX-License-Identifier: Apache-2.0
"""The programs in examples/ build against the library alone and do what they say."""
import pathlib, re, subprocess

import pytest

from conftest import ROOT, SUPERNODE

FASHION = pathlib.Path('/usr/share/datasets/fashion-mnist')


@pytest.mark.skipif(not FASHION.exists(), reason='dataset-fashion-mnist is not installed')
def test_fashion_mnist(tmp_path):
    build = pathlib.Path(SUPERNODE).parent
    cc = subprocess.run(['cc', '-O2', '-Wall', '-Werror', ROOT / 'examples' / 'fashion_mnist.c', '-o', 'x', f'-I{ROOT}/src', f'-I{ROOT}/include',
                         f'-L{build}', '-lsupernode', f'-Wl,-rpath,{build}'], cwd=tmp_path, capture_output=True, text=True)
    assert cc.returncode == 0, cc.stderr
    r = subprocess.run([tmp_path / 'x', '600'], capture_output=True, text=True, timeout=100)
    assert r.returncode == 0, r.stderr
    assert float(re.search(r'accuracy ([0-9.]+)', r.stdout)[1]) > 0.84
    r = subprocess.run([tmp_path / 'x', '1', '/nonexistent'], capture_output=True, text=True)
    assert r.returncode == 1 and 'a folder of idx files is read' in r.stderr
