/* SPDX-License-Identifier: Apache-2.0
 * All-reduce of an MPI library, on request: reads how many to do back to back, answers with the
 * seconds of one (the slowest rank's mean).
 *   mpicc -O2 peer_mpi.c && mpirun -np 2 ./a.out BYTES DIR
 *
 * Between requests every rank sleeps in a read, which a broadcast would not do: rank 0 reads stdin
 * and passes the line on through a pipe in DIR to each of the others. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define RANKS_MAX 64

static double burst(float *buf, int count, int times)
{
    double slowest = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < times; i++)
        MPI_Allreduce(MPI_IN_PLACE, buf, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    double mean = (MPI_Wtime() - start) / times;
    MPI_Reduce(&mean, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return slowest;
}

static int check(float *buf, int count, int rank, int ranks)
{
    for (int i = 0; i < count; i++)
        buf[i] = (float) (rank + 1);
    burst(buf, count, 1);
    int right = buf[count - 1] == (float) (ranks * (ranks + 1) / 2);
    memset(buf, 0, (size_t) count * sizeof *buf);
    return right;
}

/* Rank 0: where to pass requests on; the others: where they come from. */
static int open_pipes(const char *dir, int rank, int ranks, FILE **pipe)
{
    char path[4096];
    for (int r = 1; rank == 0 && r < ranks; r++) {
        snprintf(path, sizeof path, "%s/ask.%d", dir, r);
        if (mkfifo(path, 0600))
            return 0;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int r = rank ? rank : 1; r < (rank ? rank + 1 : ranks); r++) {
        snprintf(path, sizeof path, "%s/ask.%d", dir, r);
        pipe[r] = fopen(path, rank ? "r" : "w");
        if (!pipe[r])
            return 0;
    }
    return 1;
}

static int next_request(int rank, int ranks, FILE **pipe)
{
    char line[64];
    if (!fgets(line, sizeof line, rank ? pipe[rank] : stdin))
        return 0;
    for (int r = 1; rank == 0 && r < ranks; r++) {
        fputs(line, pipe[r]);
        fflush(pipe[r]);
    }
    return atoi(line);
}

int main(int argc, char **argv)
{
    int rank, ranks, times;
    FILE *pipe[RANKS_MAX] = {NULL};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int count = argc > 2 ? atoi(argv[1]) / 4 : 0;
    float *buf = NULL;
    if (count < 1 || ranks > RANKS_MAX ||
        posix_memalign((void **) &buf, 4096, (size_t) count * sizeof *buf) ||
        !check(buf, count, rank, ranks) || !open_pipes(argv[2], rank, ranks, pipe))
        MPI_Abort(MPI_COMM_WORLD, 1);
    while ((times = next_request(rank, ranks, pipe)) > 0) {
        double seconds = burst(buf, count, times);
        if (rank == 0) {
            printf("%.9g\n", seconds);
            fflush(stdout);
        }
    }
    for (int r = 1; rank == 0 && r < ranks; r++)
        fclose(pipe[r]);
    MPI_Finalize();
    free(buf);
    return 0;
}
