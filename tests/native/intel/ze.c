/* A Level Zero loader with a driver for two GPUs and an NPU. FAKE_ZE: what goes wrong. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { uint32_t stype; void *next; uint8_t uuid[16]; uint32_t version; } driver_t;
typedef struct {
    uint32_t stype; void *next; uint32_t type, vendor, device, flags, subdevice, clock;
    uint64_t largest; uint32_t contexts, priority, threads, simd, eus, subslices, slices;
    uint64_t resolution; uint32_t bits, kernel_bits; uint8_t uuid[16]; char name[256];
} device_t;
typedef struct { uint32_t stype; void *next; uint32_t flags, clock, width; uint64_t total; char name[256]; } memory_t;
typedef struct { uint32_t stype; void *next; uint32_t type; uint64_t size; uint32_t read, write, unit; } extended_t;
typedef struct {
    uint32_t stype; void *next; uint32_t domain, bus, device, function; int32_t generation, width; int64_t rate;
} pci_t;

enum { INVALID = 0x78000004, UNSUPPORTED = 0x78000003, LOST = 0x70000001 };
static char driver, devices[3];

static int wrong(const char *what) {
    const char *mode = getenv("FAKE_ZE");
    return mode && strstr(mode, what) != NULL;
}

int zeInit(uint32_t flags) {
    if (wrong("init-crash")) *(volatile int *)0 = 0;
    if (wrong("init-hang")) for (;;) sleep(1);
    if (wrong("noise")) (void)!write(1, "noise\n", 6);
    return flags != 1 ? INVALID : wrong("lost") ? LOST : 0;
}

static int give(uint32_t *count, void **handles, char *first, uint32_t there) {
    if (*count == 0) { *count = there; return handles ? INVALID : 0; }
    if (!handles) return INVALID;
    if (*count > there) *count = there;
    for (uint32_t i = 0; i < *count; i++) handles[i] = first + i;
    return 0;
}

int zeDriverGet(uint32_t *count, void **handles) { return give(count, handles, &driver, wrong("nothing") ? 0 : 1); }

int zeDeviceGet(void *of, uint32_t *count, void **handles) {
    return of == &driver ? give(count, handles, devices, wrong("many") ? 1u << 30 : 3) : INVALID;
}

int zeDriverGetProperties(void *of, driver_t *out) {
    if (of != &driver || out->stype != 1) return INVALID;
    out->version = 17003219;
    return wrong("fields") ? UNSUPPORTED : 0;
}

int zeDeviceGetProperties(void *of, device_t *out) {
    long number = (char *)of - devices;
    if (number < 0 || number > 2 || out->stype != 3) return INVALID;
    if (wrong("fields")) return UNSUPPORTED;
    if (number == 1 && wrong("card-crashes")) *(volatile int *)0 = 0;
    if (number == 1 && wrong("card-hangs")) for (;;) sleep(1);
    *out = (device_t){.stype = 3, .next = out->next, .type = number == 0 ? 5 : 1, .vendor = 0x8086};
    out->device = number == 1 ? 0xe20b : 0x4682;
    out->flags = number == 2;
    out->clock = 2850; out->largest = 1ull << 33;
    out->eus = 8; out->subslices = 4; out->slices = 5;
    strcpy(out->name, number == 1 ? "Intel(R) Test GPU" : "\xff\xfeIntegrated");
    return 0;
}

#ifndef OLD
static int lost(void *of) {
    if (of == devices + 1 && wrong("address-crashes")) *(volatile int *)0 = 0;
    return 0;
}

int zeDevicePciGetPropertiesExt(void *of, pci_t *out) {
    if (out->stype != 0x10008 || lost(of)) return INVALID;
    out->bus = of == devices + 1 ? 3 : 0; out->device = of == devices + 1 ? 0 : 2;
    return wrong("fields") ? UNSUPPORTED : 0;
}
#endif

int zeDeviceGetMemoryProperties(void *of, uint32_t *count, memory_t *out) {
    if (!of || *count != 1 || !out || out->stype != 7) return INVALID;
    if (wrong("fields")) return UNSUPPORTED;
    out->clock = 9500; out->width = 64; out->total = 12809404416ull;
    extended_t *more = out->next;
    if (more && more->stype == 0x1000e) { more->read = 456; more->unit = 1; }
    return 0;
}
