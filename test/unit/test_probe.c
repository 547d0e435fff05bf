/* SPDX-License-Identifier: Apache-2.0
 * Machines that are here, captured, described and made up. */
#include "os/os.h"
#include "probe/parts.h"
#include "probe/probe.h"
#include "unit/sn_test.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>

/* The directory of this file's test tree, however the build was set up. */
static void tree(char out[4096], const char *below)
{
    snprintf(out, 4096, "%s", __FILE__);
    char *end = strstr(out, "unit/test_probe.c");
    snprintf(end, (size_t) (out + 4096 - end), "%s", below);
}

static char *read_all(const char *path)
{
    char *text;
    size_t bytes;
    assert_ok(sn_file_read(path, 1 << 20, &text, &bytes));
    return text;
}

static void compare(const sn_topo *topo, const char *file)
{
    char expected[4100];
    sn_str out = {0};
    snprintf(expected, sizeof expected, "%.*s.expected", (int) (strrchr(file, '.') - file), file);
    sn_topo_print(topo, &out);
    sn_topo_yaml(topo, &out);
    char *want = read_all(expected);
    if (strcmp(want, sn_str_get(&out)) != 0)
        fail_msg("%s: now it is\n%s", expected, sn_str_get(&out));
    free(want);
    sn_str_done(&out);
}

/* Each NAME.xml and NAME.synthetic beside its NAME.expected: what is printed, then the YAML. */
static void test_golden(void **state)
{
    char dir_path[4096], path[8192];
    int machines = 0;
    tree(dir_path, "golden/topo");
    DIR *dir = opendir(dir_path);
    if (!dir)
        fail_msg("no %s: run this from the build directory", dir_path);
    for (struct dirent *e; (e = readdir(dir));) {
        const char *dot = strrchr(e->d_name, '.');
        sn_topo *topo = NULL;
        snprintf(path, sizeof path, "%s/%s", dir_path, e->d_name);
        if (dot && !strcmp(dot, ".xml")) {
            assert_ok(sn_probe_hwloc_xml(path, &topo));
        } else if (dot && !strcmp(dot, ".synthetic")) {
            char *text = read_all(path);
            text[strcspn(text, "\n")] = 0;
            assert_ok(sn_probe_synthetic(text, &topo));
            free(text);
        } else {
            continue;
        }
        sn_topo_check(topo);
        compare(topo, path);
        sn_topo_free(topo);
        machines++;
    }
    closedir(dir);
    assert_true(machines >= 4);
}

static void test_here(void **state)
{
    sn_topo *topo, *back;
    assert_ok(sn_probe_machine(&topo));
    sn_topo_check(topo);
    assert_int_equal(topo->hosts, 1);
    assert_true(topo->host[0].cores >= 1 && topo->host[0].cores <= sn_cores());
    assert_true(topo->host[0].memory_bytes > 1 << 20);
    for (int c = 0; c < topo->host[0].cores; c++) {
        assert_string_equal(topo->card[c].kind, "cpu");
        assert_true(topo->card[c].core >= 0 && topo->card[c].core < sn_cores());
        assert_true(topo->card[c].flops_f32 > 1e8 && topo->card[c].flops_bf16 > 0);
        for (int d = 0; d < c; d++)
            assert_int_not_equal(topo->card[c].core, topo->card[d].core);
    }
    for (int i = 0; i < topo->links; i++)
        assert_false(topo->link[i].measured);
    sn_str text = {0};
    sn_topo_yaml(topo, &text);
    assert_ok(sn_topo_parse(sn_str_get(&text), text.len, "here", &back));
    assert_true(sn_topo_equal(topo, back));
    sn_str_done(&text);
    sn_topo_free(back);
    sn_topo_free(topo);
}

/* With one core allowed the machine has one core, the first one that can be bound. */
static void test_affinity(void **state)
{
    cpu_set_t whole, one;
    sn_topo *topo;
    int last = -1;
    assert_int_equal(sched_getaffinity(0, sizeof whole, &whole), 0);
    for (int i = 0; i < CPU_SETSIZE; i++)
        last = CPU_ISSET(i, &whole) ? i : last;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    sn_status status = sn_probe_machine(&topo);
    sched_setaffinity(0, sizeof whole, &whole);
    assert_ok(status);
    assert_int_equal(topo->host[0].cores, 1);
    assert_int_equal(topo->card[0].core, 0);
    sn_topo_free(topo);
}

static void test_bad(void **state)
{
    sn_topo *topo = NULL;
    static const char *const texts[] = {"",
                                        "<",
                                        "<topology version=\"3.0\"></topology>",
                                        "<topology version=\"2.0\"></topology>",
                                        "hosts: []",
                                        "<?xml version=\"1.0\"?><html/>"};
    for (size_t i = 0; i < SN_COUNT(texts); i++) {
        assert_int_equal(sn_probe_hwloc_xml_text(texts[i], strlen(texts[i]), "x.xml", &topo),
                         SN_EINVAL);
        assert_non_null(strstr(sn_errmsg(), "x.xml"));
    }
    assert_int_equal(sn_probe_synthetic("core:x", &topo), SN_EINVAL);
    assert_int_equal(sn_probe_synthetic("", &topo), SN_EINVAL);
    assert_int_equal(sn_probe_hwloc_xml("/nonexistent/x.xml", &topo), SN_ENOTFOUND);
    assert_null(topo);
}

/* ---- NVML, played by this file: three GPUs, the second refuses its name ---- */

static int yes(void)
{
    return 0;
}

static int no(void)
{
    return 1;
}

static int three(unsigned *ret)
{
    *ret = 3;
    return 0;
}

static int handle_of(unsigned index, nvml_device **ret)
{
    *ret = (nvml_device *) (uintptr_t) (index + 1);
    return 0;
}

static int name_of(nvml_device *device, char *ret, unsigned bytes)
{
    static const char *const names[] = {"NVIDIA H100 80GB HBM3", NULL, "Tesla (Test) 9000"};
    const char *name = names[(uintptr_t) device - 1];
    if (name)
        snprintf(ret, bytes, "%s", name);
    return !name;
}

static int memory_of(nvml_device *device, nvml_memory *ret)
{
    *ret = (nvml_memory){.total = 1000 * (uintptr_t) device};
    return 0;
}

static int pci_of(nvml_device *device, nvml_pci *ret)
{
    *ret = (nvml_pci){.bus = 0x10 + (unsigned) (uintptr_t) device};
    return 0;
}

static int clock_of(nvml_device *device, int clock, unsigned *ret)
{
    *ret = clock == 1 ? 1000 : 2000;
    return 0;
}

static int cores_of(nvml_device *device, unsigned *ret)
{
    *ret = 500;
    return 0;
}

static int width_of(nvml_device *device, unsigned *ret)
{
    *ret = 512;
    return 0;
}

static int generation_of(nvml_device *device, unsigned *ret)
{
    *ret = 5;
    return 0;
}

static int lanes_of(nvml_device *device, unsigned *ret)
{
    *ret = 16;
    return 0;
}

static void test_nvml(void **state)
{
    nvml_api api = {yes,    yes,      three,    handle_of, name_of,       memory_of,
                    pci_of, clock_of, cores_of, width_of,  generation_of, lanes_of};
    probe_gpu gpu[PROBE_GPUS_MAX];
    char kind[48];
    assert_int_equal(probe_nvml_with(&api, gpu), 2);
    assert_int_equal(gpu[1].bus, 0x13);
    assert_true(gpu[1].flops_f32 == 1e12 && gpu[1].memory_bytes_per_s == 256e9);
    assert_true(gpu[1].link_bytes_per_s == 16 * 3.938e9);
    sn_topo_card card = probe_gpu_card(&gpu[0], kind);
    assert_string_equal(card.kind, "h100"); /* peaks of the table, the rest as found */
    assert_true(card.flops_f32 == 67e12 && card.flops_bf16 == 989e12 && card.memory_bytes == 1000);
    card = probe_gpu_card(&gpu[1], kind);
    assert_string_equal(card.kind, "tesla-test-9000");
    assert_true(card.flops_f32 == 1e12 && card.flops_bf16 == 0);
    api.clock_max = NULL; /* an old driver */
    assert_int_equal(probe_nvml_with(&api, gpu), 2);
    assert_true(gpu[0].flops_f32 == 0 && gpu[0].memory_bytes_per_s == 0);
    api.init = no;
    assert_int_equal(probe_nvml_with(&api, gpu), 0);
}

int main(void)
{
    /* hwloc unloads its plugins with the last tree; while one is there, a leak checker can name the
     * library that keeps memory. */
    static hwloc_topology_t keeps_plugins;
    hwloc_topology_init(&keeps_plugins);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden), cmocka_unit_test(test_here), cmocka_unit_test(test_affinity),
        cmocka_unit_test(test_bad),    cmocka_unit_test(test_nvml),
    };
    return sn_test_run(tests);
}
