/* A libascendcl.so that shows FAKE_count devices, three where it is not set; FAKE_<function> as in dcmi.c,
 * and FAKE_second for the device 1 alone.
 *
 * It gives 0 and 0 with status 0 for HBM on devices that have none, and aborts when the process ends, as some do.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int current = -1;

static int status(const char *name) {
    char variable[128];
    const char *said;
    snprintf(variable, sizeof variable, "FAKE_%s", name);
    said = getenv(variable);
    if (!said) return 0;
    if (!strcmp(said, "hang")) for (;;) pause();
    if (!strcmp(said, "crash")) abort();
    return atoi(said);
}

#define SAY(name) do { int s = status(#name); if (s) return s; } while (0)

static void at_end(void) { if (getenv("FAKE_end")) abort(); }

int aclInit(const char *config) { SAY(aclInit); atexit(at_end); return config ? 100000 : 0; }
int aclrtGetDeviceCount(uint32_t *to) {
    SAY(aclrtGetDeviceCount);
    *to = getenv("FAKE_count") ? atoi(getenv("FAKE_count")) : 3;
    return 0;
}
int aclrtGetVersion(int32_t *a, int32_t *b, int32_t *c) { SAY(aclrtGetVersion); *a = 1; *b = 14; *c = 0; return 0; }
#ifndef OLD
int aclGetDeviceCapability(uint32_t device, int kind, int64_t *to) {
    SAY(aclGetDeviceCapability);
    if (kind > 2) return 100000;
    *to = kind == 0 ? 20 : kind == 1 ? 40 : 1 << 20;
    return 0;
}
#endif
int aclrtSetDevice(int32_t device) { SAY(aclrtSetDevice); if (device == 1) SAY(second); current = device; return 0; }
int aclrtGetMemInfo(int kind, size_t *free_, size_t *total) {
    SAY(aclrtGetMemInfo);
    if (current < 0) return 107002;
    *free_ = *total = 0;
    if (kind == (current == 2)) { *free_ = 7000 + current; *total = 8000; }
    return 0;
}
