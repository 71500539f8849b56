/* A libcuda.so.1 with one GPU at 0000:06:00.0; FAKE_cuInit in the environment is its status, `hang` or `crash`. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cuInit(unsigned flags) {
    const char *said = getenv("FAKE_cuInit");
    if (!said) return 0;
    if (!strcmp(said, "hang")) for (;;) pause();
    if (!strcmp(said, "crash")) raise(SIGSEGV);
    return atoi(said);
}
int cuDriverGetVersion(int *to) { *to = 12080; return 0; }
int cuDeviceGetCount(int *to) { *to = 1; return 0; }
int cuDeviceGet(int *to, int ordinal) { *to = ordinal + 40; return ordinal ? 101 : 0; }
int cuDeviceGetAttribute(int *to, int attribute, int device) {
    if (device != 40) return 101;
    *to = attribute == 75 ? 12 : 0;
    return 0;
}
int cuDeviceGetPCIBusId(char *to, int size, int device) { snprintf(to, size, "0000:06:00.0"); return device == 40 ? 0 : 101; }
int cuDeviceGetUuid_v2(unsigned char *to, int device) { for (int i = 0; i < 16; i++) to[i] = 200 + i; return 0; }
int cuDeviceTotalMem_v2(size_t *to, int device) { *to = (size_t)24 << 30; return device == 40 ? 0 : 101; }
