/* A libamd_smi.so with two cards, 0000:03:00.0 and 0001:83:1e.0, in two sockets.
 *
 * FAKE_<function> in the environment is the status of that function, `hang` or `crash`. OLD compiles the structure of
 * ROCm 6.0, whose first field is shorter; NO_NAME leaves a function out. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef OLD
#define TEXT 64
#else
#define TEXT 256
#endif

typedef struct {
    char market_name[TEXT];
    uint32_t vendor_id;
    char vendor_name[TEXT];
    uint32_t subvendor_id;
    uint64_t device_id;
    uint32_t rev_id;
    char asic_serial[TEXT];
    uint32_t oam_id, num_of_compute_units;
    uint64_t target_graphics_version;
    uint32_t reserved[22];
} asic_info;

static int status(const char *function) {
    char name[80];
    snprintf(name, sizeof name, "FAKE_%s", function);
    const char *said = getenv(name);
    if (!said) return 0;
    if (!strcmp(said, "hang")) for (;;) pause();
    if (!strcmp(said, "crash")) raise(SIGSEGV);
    return atoi(said);
}

int amdsmi_init(uint64_t flags) { return flags == 2 ? status(__func__) : 1; }
int amdsmi_shut_down(void) { return status(__func__); }

int amdsmi_get_socket_handles(uint32_t *count, void **handles) {
    int failed = status(__func__);
    if (failed) return failed;
    if (handles) for (uint32_t i = 0; i < *count; i++) handles[i] = (void *)(0x700000000000 + i);
    *count = 2;
    return 0;
}

int amdsmi_get_processor_handles(void *socket, uint32_t *count, void **handles) {
    int failed = status(__func__);
    if (failed) return failed;
    if (handles) handles[0] = (void *)((uintptr_t)socket + 0x100);
    *count = 1;
    return 0;
}

static int second(void *handle) { return ((uintptr_t)handle & 0xff) == 1; }

int amdsmi_get_gpu_device_bdf(void *handle, uint64_t *bdf) {
    *bdf = second(handle) ? (uint64_t)1 << 16 | 0x83 << 8 | 0x1e << 3 : 0x3 << 8;
    return second(handle) ? status(__func__) : 0;
}

#ifndef NO_NAME
int amdsmi_get_gpu_asic_info(void *handle, asic_info *to) {
    memset(to, 0xff, sizeof *to);
    snprintf(to->market_name, TEXT, "AMD Radeon RX 7900 %s", second(handle) ? "XT" : "XTX");
    return second(handle) ? status(__func__) : 0;
}
#endif
