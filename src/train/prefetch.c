/* SPDX-License-Identifier: Apache-2.0
 *
 * prefetch — a thread that fills batches ahead of the steps, so that a page that has to come from a
 * disk is waited for here and not between two kernels.
 *
 *   thread:  fill [taken + depth … ) ─►  ring of `depth` batches  ─► copied into the inputs: step
 *
 * All memory is there before the first batch. The wait for a batch has a deadline: a disk that does
 * not answer ends the job with a sentence. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "os/os.h"
#include "train/parts.h"

struct train_prefetch {
    const train_feed *feed; /* of the step: where batches go */
    train_feed *ring;       /* [depth]: the same with inputs of their own */
    const sn_tokens *tokens;
    uint64_t seed;
    int64_t first, batch, batches;
    int64_t filled, taken; /* counts; filled − taken ≤ depth */
    int depth;
    bool leave, running;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    sn_arena *arena;
};

static void *fill(void *ctx)
{
    train_prefetch *p = ctx;
    pthread_mutex_lock(&p->lock);
    while (!p->leave && p->filled < p->batches) {
        if (p->filled - p->taken >= p->depth) {
            pthread_cond_wait(&p->changed, &p->lock);
            continue;
        }
        int64_t k = p->filled;
        pthread_mutex_unlock(&p->lock);
        train_feed_step(&p->ring[k % p->depth], p->tokens, p->seed, p->first + k * p->batch);
        pthread_mutex_lock(&p->lock);
        p->filled++;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static size_t input_bytes(const train_feed *f, const train_input *in)
{
    return (size_t) (in->samples * f->sequence) * sizeof *in->at;
}

static void make_ring(train_prefetch *p)
{
    p->ring = SN_NEW_N(p->arena, train_feed, p->depth);
    for (int d = 0; d < p->depth; d++) {
        p->ring[d] = *p->feed;
        p->ring[d].input = SN_NEW_N(p->arena, train_input, SN_MAX(1, p->feed->inputs));
        for (int i = 0; i < p->feed->inputs; i++) {
            p->ring[d].input[i] = p->feed->input[i];
            p->ring[d].input[i].at =
                sn_arena_alloc(p->arena, input_bytes(p->feed, &p->feed->input[i]));
        }
    }
}

sn_status train_prefetch_open(const train_feed *f, const sn_tokens *t, uint64_t seed, int64_t first,
                              int64_t batch, int64_t batches, int depth, train_prefetch **ret)
{
    train_prefetch *p = sn_alloc(sizeof *p);
    *p = (train_prefetch){.feed = f,
                          .tokens = t,
                          .seed = seed,
                          .first = first,
                          .batch = batch,
                          .batches = batches,
                          .depth = SN_MAX(1, depth),
                          .arena = sn_arena_create()};
    make_ring(p);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&p->lock, NULL);
    int code = pthread_create(&p->thread, NULL, fill, p);
    p->running = !code;
    if (code) {
        train_prefetch_close(p);
        return sn_fail(SN_EIO, "no thread to read data ahead: %s", strerror(code));
    }
    *ret = p;
    return SN_OK;
}

static sn_status wait_filled(train_prefetch *p, sn_time deadline)
{
    struct timespec until = {.tv_sec = deadline / SN_SEC, .tv_nsec = deadline % SN_SEC};
    int code = 0;
    pthread_mutex_lock(&p->lock);
    while (p->filled <= p->taken && !code)
        code = pthread_cond_timedwait(&p->changed, &p->lock, &until);
    bool there = p->filled > p->taken;
    pthread_mutex_unlock(&p->lock);
    return there ? SN_OK : sn_fail(SN_ETIME, "the data of the next batch did not come from disk");
}

sn_status train_prefetch_take(train_prefetch *p, sn_time deadline)
{
    SN_TRY(wait_filled(p, deadline));
    const train_feed *from = &p->ring[p->taken % p->depth];
    for (int i = 0; i < p->feed->inputs; i++)
        memcpy(p->feed->input[i].at, from->input[i].at, input_bytes(p->feed, &from->input[i]));
    pthread_mutex_lock(&p->lock);
    p->taken++;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return SN_OK;
}

void train_prefetch_close(train_prefetch *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->leave = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    if (p->running)
        pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    sn_arena_free(p->arena);
    free(p);
}
