/* A libnvidia-ml.so.1 with two GPUs, the second split into MIG instances 3.0 and 5.0 with a hole between them.
 *
 * FAKE_<function> in the environment is the status that the function gives, FAKE_<function>_<card> that of one card;
 * `hang` and `crash` do that, and `zero` gives a memory without size. No two functions give the same value.
 * With -DOLD it has the names of drivers before 450 only. Layouts are those of nvml.h.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { int card, gi; } *device_t;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, sub; char text[32]; } pci_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory2_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } process_t;
typedef struct { unsigned pid; unsigned long long used; } process1_t;
typedef struct { unsigned gpu, memory; } use_t;
typedef struct { unsigned version, sensor; int value; } temperature_t;
typedef struct { unsigned sm, ce, dec, enc, jpeg, ofa, gslice, cslice; unsigned long long mib; } attributes_t;
typedef struct { unsigned y; unsigned short mo, d, h, mi, s; unsigned char status; } expiry_t;
typedef struct { unsigned code, state; char info[128], product[128]; unsigned enabled; expiry_t expiry; } feature_t;
typedef struct { int supported; unsigned count; feature_t rows[3]; } features_t;

static struct { int card, gi; } cards[2] = {{0, 0}, {1, 0}};
#ifndef OLD
static struct { int card, gi; } parts[3] = {{1, 3}, {1, 5}, {1, 9}};
#endif
static int entered = 0;

static int status_of(const char *name, int card) {
    char variable[128];
    const char *said;
    snprintf(variable, sizeof variable, card < 0 ? "FAKE_%s" : "FAKE_%s_%d", name, card);
    said = getenv(variable);
    if (!said) return 0;
    if (!strcmp(said, "hang")) for (;;) pause();
    if (!strcmp(said, "crash")) raise(SIGSEGV);
    return atoi(said);
}
static int status(const char *name) { return status_of(name, -1); }

#define SAY(name) do { int s = status(#name); if (s) return s; if (!entered) return 1; } while (0)
#define SAY_OF(name) do { int s = status_of(#name, d->card); if (s) return s; SAY(name); } while (0)
#define GIVE(name, value) int name(device_t d, unsigned *to) { SAY(name); *to = value; return 0; }
#ifdef OLD
#define V(name, version) name
#else
#define V(name, version) name##version
#endif

int V(nvmlInit, _v2)(void) { int s = status("nvmlInit"); entered = !s; return s; }
int nvmlShutdown(void) { SAY(nvmlShutdown); entered = 0; return 0; }
int nvmlSystemGetDriverVersion(char *to, unsigned size) { SAY(nvmlSystemGetDriverVersion); snprintf(to, size, "570.12"); return 0; }
int V(nvmlSystemGetCudaDriverVersion, _v2)(int *to) { SAY(nvmlSystemGetCudaDriverVersion); *to = 12080; return 0; }
int V(nvmlDeviceGetCount, _v2)(unsigned *to) { SAY(nvmlDeviceGetCount); *to = 2; return 0; }
int V(nvmlDeviceGetHandleByIndex, _v2)(unsigned index, device_t *to) {
    char name[64];
    int s;
    SAY(nvmlDeviceGetHandleByIndex);
    if (index > 1) return 2;
    snprintf(name, sizeof name, "handle%u", index);
    if ((s = status(name))) return s;
    *to = (device_t)&cards[index];
    return 0;
}
int nvmlDeviceGetName(device_t d, char *to, unsigned size) {
    SAY_OF(nvmlDeviceGetName);
    snprintf(to, size, d->gi ? "NVIDIA T1 MIG 2g" : "NVIDIA T%d", d->card);
    return 0;
}
int nvmlDeviceGetUUID(device_t d, char *to, unsigned size) {
    SAY(nvmlDeviceGetUUID);
    snprintf(to, size, "%s-1b2c3d4e-5a6b-4c7d-8e9f-a0b1c2d3e4%d%d", d->gi ? "MIG" : "GPU", d->card, d->gi);
    return 0;
}
#ifdef OLD
int nvmlDeviceGetPciInfo_v2(device_t d, pci_t *to) {
    struct { char text[16]; unsigned domain, bus, device, id, sub, reserved[4]; } older = {
        "0000:06:00.0", 0, 6 + d->card, 0, 0x222210de, 0, {0}};
    SAY(nvmlDeviceGetPciInfo);
    memcpy(to, &older, sizeof older);
    return 0;
}
#else
int nvmlDeviceGetPciInfo_v3(device_t d, pci_t *to) {
    SAY_OF(nvmlDeviceGetPciInfo);
    *to = (pci_t){"", 0, 6 + d->card, 0, 0x222210de, 0, "00000000:06:00.0"};
    return 0;
}
int nvmlDeviceGetMemoryInfo_v2(device_t d, memory2_t *to) {
    SAY_OF(nvmlDeviceGetMemoryInfo_v2);
    if (to->version != 0x02000028) return 25;
    to->total = d->gi ? 2000 : 8000; to->reserved = 100; to->used = 900; to->free = to->total - 1000;
    if (getenv("FAKE_zero")) to->total = to->reserved = to->used = to->free = 0;
    return 0;
}
int nvmlDeviceGetTemperatureV(device_t d, temperature_t *to) {
    SAY(nvmlDeviceGetTemperatureV);
    if (to->version != 0x0100000C || to->sensor) return 25;
    to->value = -3;
    return 0;
}
int nvmlDeviceGetCurrentClocksEventReasons(device_t d, unsigned long long *to) {
    SAY(nvmlDeviceGetCurrentClocksEventReasons); *to = 0x1000000000000044ULL; return 0; }
/* Four start between the two calls. */
int nvmlDeviceGetComputeRunningProcesses_v3(device_t d, unsigned *count, process_t *to) {
    unsigned room = *count, i;
    SAY(nvmlDeviceGetComputeRunningProcesses);
    *count = to ? 74 : 70;
    if (room < *count || !to) return 7;
    for (i = 0; i < 74; i++) to[i] = (process_t){i + 1, i ? 5 : ~0ULL, ~0u, ~0u};
    return 0;
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(device_t d, unsigned *count, process_t *to) {
    SAY(nvmlDeviceGetGraphicsRunningProcesses);
    if (*count < 2 || !to) { *count = 2; return 7; }
    *count = 2; to[0] = (process_t){74, 6, ~0u, ~0u}; to[1] = (process_t){900, 11, ~0u, ~0u};
    return 0;
}
int nvmlDeviceGetMigMode(device_t d, unsigned *now, unsigned *later) { SAY(nvmlDeviceGetMigMode); *now = d->card; *later = !d->card; return 0; }
int nvmlDeviceGetMaxMigDeviceCount(device_t d, unsigned *to) { SAY(nvmlDeviceGetMaxMigDeviceCount); *to = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(device_t d, unsigned index, device_t *to) {
    SAY(nvmlDeviceGetMigDeviceHandleByIndex);
    if (index == 3) return 2;
    if (index % 2) return 6;
    *to = (device_t)&parts[index / 2];
    return 0;
}
int nvmlDeviceGetGpuInstanceId(device_t d, unsigned *to) { SAY(nvmlDeviceGetGpuInstanceId); *to = d->gi; return 0; }
int nvmlDeviceGetComputeInstanceId(device_t d, unsigned *to) { SAY(nvmlDeviceGetComputeInstanceId); *to = 0; return 0; }
int nvmlDeviceGetAttributes_v2(device_t d, attributes_t *to) { SAY(nvmlDeviceGetAttributes); memset(to, 0, sizeof *to); to->sm = 28; to->mib = 9; return 0; }
int nvmlDeviceGetVirtualizationMode(device_t d, unsigned *to) { SAY(nvmlDeviceGetVirtualizationMode); *to = 2; return 0; }
int nvmlDeviceGetGridLicensableFeatures_v4(device_t d, features_t *to) {
    SAY(nvmlDeviceGetGridLicensableFeatures);
    memset(to, 0, sizeof *to);
    to->supported = 1; to->count = 2; to->rows[1].enabled = d->card;
    return 0;
}
int nvmlDeviceGetNvLinkState(device_t d, unsigned link, unsigned *to) { SAY(nvmlDeviceGetNvLinkState); if (link > 3) return 2; *to = link != 1; return 0; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2(device_t d, unsigned link, pci_t *to) {
    SAY(nvmlDeviceGetNvLinkRemotePciInfo);
    if (link == 3) return 3;
    *to = (pci_t){"", 0, 7 - d->card, 0, 0, 0, ""};
    return 0;
}
int nvmlDeviceGetRemappedRows(device_t d, unsigned *a, unsigned *b, unsigned *c, unsigned *e) { SAY(nvmlDeviceGetRemappedRows); *a = 4; *b = 2; *c = 1; *e = 0; return 0; }
GIVE(nvmlDeviceGetEnforcedPowerLimit, 70000)
GIVE(nvmlDeviceGetNumGpuCores, 5888)
int nvmlDeviceGetHandleByPciBusId_v2(const char *address, device_t *to) {
    SAY(nvmlDeviceGetHandleByPciBusId);
    if (!strcmp(address, "0000:08:00.0")) return 15;
    return 6;
}
#endif
int nvmlDeviceGetMinorNumber(device_t d, unsigned *to) { SAY(nvmlDeviceGetMinorNumber); *to = 1 - d->card; return 0; }
int nvmlDeviceGetCudaComputeCapability(device_t d, int *major, int *minor) { SAY(nvmlDeviceGetCudaComputeCapability); *major = 12; *minor = 0; return 0; }
int nvmlDeviceGetMemoryInfo(device_t d, memory_t *to) {
    SAY(nvmlDeviceGetMemoryInfo);
    *to = getenv("FAKE_zero") ? (memory_t){0, 0, 0} : (memory_t){8000, 6500, 1500};
    return 0;
}
int nvmlDeviceGetTemperature(device_t d, unsigned sensor, unsigned *to) { SAY(nvmlDeviceGetTemperature); *to = 41 + sensor; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(device_t d, unsigned long long *to) { SAY(nvmlDeviceGetCurrentClocksThrottleReasons); *to = 4; return 0; }
int nvmlDeviceGetComputeRunningProcesses(device_t d, unsigned *count, process1_t *to) {
    SAY(nvmlDeviceGetComputeRunningProcesses);
    if (*count < 1 || !to) { *count = 1; return 7; }
    *count = 1; to[0] = (process1_t){77, 1000};
    return 0;
}
int nvmlDeviceGetGraphicsRunningProcesses(device_t d, unsigned *count, process1_t *to) {
    SAY(nvmlDeviceGetGraphicsRunningProcesses);
    if (*count < 1 || !to) { *count = 1; return 7; }
    *count = 1; to[0] = (process1_t){78, 2000};
    return 0;
}
int nvmlDeviceGetComputeMode(device_t d, unsigned *to) { SAY(nvmlDeviceGetComputeMode); *to = 3; return 0; }
int nvmlDeviceGetMaxClockInfo(device_t d, unsigned kind, unsigned *to) { SAY(nvmlDeviceGetMaxClockInfo); *to = 1000 * kind; return 0; }
int nvmlDeviceGetClockInfo(device_t d, unsigned kind, unsigned *to) { SAY(nvmlDeviceGetClockInfo); *to = 100 * kind; return 0; }
int nvmlDeviceGetMemoryBusWidth(device_t d, unsigned *to) { SAY(nvmlDeviceGetMemoryBusWidth); *to = 128; return 0; }
int nvmlDeviceGetPowerUsage(device_t d, unsigned *to) { SAY(nvmlDeviceGetPowerUsage); *to = 12345; return 0; }
int nvmlDeviceGetUtilizationRates(device_t d, use_t *to) { SAY(nvmlDeviceGetUtilizationRates); *to = (use_t){17, 9}; return 0; }
int nvmlDeviceGetEccMode(device_t d, unsigned *now, unsigned *later) { SAY(nvmlDeviceGetEccMode); *now = 1; *later = 0; return 0; }
GIVE(nvmlDeviceGetPowerManagementLimit, 80000)
GIVE(nvmlDeviceGetPowerManagementDefaultLimit, 90000)
GIVE(nvmlDeviceGetMaxPcieLinkGeneration, 4)
GIVE(nvmlDeviceGetMaxPcieLinkWidth, 16)
GIVE(nvmlDeviceGetCurrPcieLinkGeneration, 2)
GIVE(nvmlDeviceGetCurrPcieLinkWidth, 8)
GIVE(nvmlDeviceGetDisplayActive, 1)
GIVE(nvmlDeviceGetDisplayMode, 0)
GIVE(nvmlDeviceGetPersistenceMode, 0)
