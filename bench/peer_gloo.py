# SPDX-License-Identifier: Apache-2.0
"""All-reduce of PyTorch's Gloo backend, on request.

Usage: peer_gloo.py BYTES RANK WORLD FILE (a path where the ranks meet)
Reads how many to do back to back, answers with the seconds of one. In place, f32 sum, the tensor touched
before. One thread computes; Gloo's own carries the bytes, so no rank is bound to a core."""
import os, sys, time

os.environ['OMP_NUM_THREADS'] = '1'
os.environ.setdefault('GLOO_SOCKET_IFNAME', 'lo')

import torch
from torch import distributed

torch.set_num_threads(1)
count, rank, world = int(sys.argv[1]) // 4, int(sys.argv[2]), int(sys.argv[3])
distributed.init_process_group('gloo', init_method=f'file://{sys.argv[4]}', rank=rank, world_size=world)
data = torch.full((count,), float(rank + 1))
distributed.all_reduce(data)
if not bool((data == world * (world + 1) / 2).all()):
    sys.exit('the sum is wrong')
data.zero_()                            # zeros stay zeros, whatever is asked

for line in sys.stdin:
    times = int(line)
    distributed.barrier()
    start = time.perf_counter()
    for _ in range(times):
        distributed.all_reduce(data)
    print(f'{(time.perf_counter() - start) / times:.9g}', flush=True)
