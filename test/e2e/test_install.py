# SPDX-License-Identifier: Apache-2.0
"""make install: a program that uses the library builds with pkg-config alone and runs."""
import os, pathlib, shutil, subprocess

import pytest

from conftest import ROOT, SUPERNODE

PROGRAM = r'''
#include <supernode.h>
#include <stdio.h>
int main(void)
{
    sn_arena *arena = sn_arena_create();
    sn_gpt small = {1, 32, 4, 8, 256, 0};
    sn_graph *graph;
    if (sn_graph_gpt(arena, &small, 1, 8, &graph) < 0)
        return 1;
    printf("%lld\n", (long long) sn_graph_parameters(graph));
    sn_arena_free(arena);
    return 0;
}
'''


@pytest.mark.skipif(not shutil.which('meson'), reason='meson is not installed')
def test_installed_library(tmp_path):
    build = pathlib.Path(SUPERNODE).parent
    r = subprocess.run(['meson', 'install', '-C', build, '--no-rebuild', '--destdir', tmp_path], capture_output=True, text=True)
    assert r.returncode == 0, r.stdout + r.stderr
    pc = next(tmp_path.rglob('supernode.pc'))
    assert not list((tmp_path / 'usr' / 'local' / 'include').rglob('*.c'))
    (tmp_path / 'x.c').write_text(PROGRAM)
    env = {**os.environ, 'PKG_CONFIG_PATH': str(pc.parent), 'PKG_CONFIG_SYSROOT_DIR': str(tmp_path)}
    flags = subprocess.run(['pkg-config', '--cflags', '--libs', 'supernode'], env=env, capture_output=True, text=True, check=True).stdout.split()
    cc = subprocess.run(['cc', 'x.c', '-o', 'x', *flags], cwd=tmp_path, capture_output=True, text=True)
    assert cc.returncode == 0, cc.stderr
    out = subprocess.run([tmp_path / 'x'], env={**env, 'LD_LIBRARY_PATH': str(pc.parent.parent)}, capture_output=True, text=True)
    assert out.returncode == 0 and int(out.stdout) == 2 * 256 * 32 + 8 * 32 + 12 * 32 * 32 + 13 * 32 + 64
