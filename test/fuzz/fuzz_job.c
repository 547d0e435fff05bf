/* SPDX-License-Identifier: Apache-2.0
 * Job files. What is accepted must be written back as a job file that reads to the same job. */
#include "../../app/job.h"

#include <netdb.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hint,
                       struct addrinfo **ret);
void __wrap_freeaddrinfo(struct addrinfo *found);

/* No name is looked up in a network: this machine's is known, nobody else's. */
int __wrap_getaddrinfo(const char *node, const char *service, const struct addrinfo *hint,
                       struct addrinfo **ret)
{
    *ret = NULL;
    return strcmp(node, "localhost") ? EAI_NONAME : 0;
}

void __wrap_freeaddrinfo(struct addrinfo *found)
{
}

static bool is_text(const char *text)
{
    return text && *text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    sn_arena *arena = sn_arena_create();
    sn_job_spec spec, again;
    sn_str once = {0}, twice = {0};
    sn_job_defaults(&spec, arena);
    if (sn_job_parse(&spec, (const char *) data, bytes, "fuzz") == SN_OK) {
        sn_job_check(&spec);
        sn_job_yaml(&spec.job, &once);
        sn_job_defaults(&again, arena);
        SN_ASSERT(sn_job_parse(&again, sn_str_get(&once), once.len, "again") == SN_OK);
        sn_job_yaml(&again.job, &twice);
        SN_ASSERT(!strcmp(sn_str_get(&once), sn_str_get(&twice)));
        SN_ASSERT(is_text(spec.job.data) == is_text(again.job.data));
    } else {
        SN_ASSERT(*sn_errmsg());
    }
    sn_str_done(&once);
    sn_str_done(&twice);
    sn_arena_free(arena);
    return 0;
}
