/* Preloaded: a file is the render node of a GPU. FAKE_DRM: `i915` or `xe`, and what is different about it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct version { int major, minor, patch; size_t name_len; char *name; size_t date_len; char *date; size_t desc_len; char *desc; };
struct query { uint32_t num_items, flags; uint64_t items_ptr; };
struct item { uint64_t query_id; int32_t length; uint32_t flags; uint64_t data_ptr; };
struct region { uint16_t class, instance; uint32_t reserved; uint64_t size, free, reachable, reachable_free, more[6]; };
struct regions { uint32_t count, reserved[3]; struct region at[3]; };
struct xe_query { uint64_t extensions; uint32_t query, size; uint64_t data, reserved[2]; };
struct xe_region { uint16_t class, instance; uint32_t page; uint64_t size, used, reachable, reachable_used, more[6]; };
struct xe_regions { uint32_t count, pad; struct xe_region at[3]; };
struct xe_config { uint32_t count, pad; uint64_t info[4]; };

_Static_assert(sizeof(struct version) == 64 && sizeof(struct query) == 16 && sizeof(struct item) == 24, "layout");
_Static_assert(sizeof(struct region) == 88 && sizeof(struct xe_region) == 88 && sizeof(struct xe_query) == 40, "layout");

#define MIB (1ull << 20)
static int calls;

static int is(const char *what) { return strstr(getenv("FAKE_DRM"), what) != NULL; }

static int fill(void *to, uint64_t room, const void *from, uint64_t size) {
    if (room < size) { errno = EINVAL; return -1; }
    memcpy(to, from, size);
    return 0;
}

static int i915(struct query *query) {
    struct item *item = (struct item *)query->items_ptr;
    struct regions told = {2, {0}, {{0, 0, 0, 32768 * MIB, 32768 * MIB}, {1, 0, 0, 16288 * MIB, 16288 * MIB, 256 * MIB}}};
    if (is("perfmon")) told.at[1].free = 12688 * MIB;
    if (is("tiles")) { told.count = 3; told.at[2] = (struct region){1, 1, 0, 16288 * MIB, 16288 * MIB}; }
    int32_t size = 16 + 88 * told.count;
    if (query->num_items != 1 || item->query_id != 4) { errno = EINVAL; return -1; }
    if (is("refuses")) { item->length = -22; return 0; }
    if (item->length == 0) { item->length = size; return 0; }
    return fill((void *)item->data_ptr, item->length, &told, size);
}

static int xe(struct xe_query *query) {
    struct xe_regions regions = {2, 0, {{0, 0, 4096, 65536 * MIB}, {1, 1, 65536, 12216 * MIB, 0, 12216 * MIB}}};
    struct xe_config config = {4, 0, {0xe20b, !is("integrated"), 65536, 48}};
    if (is("perfmon")) regions.at[1].used = 24 * MIB;
    if (is("integrated")) regions.count = 1;
    const void *from = query->query == 1 ? (void *)&regions : &config;
    uint32_t size = query->query == 1 ? 8 + 88 * regions.count : sizeof config;
    if (query->query != 1 && query->query != 2) { errno = EINVAL; return -1; }
    if (query->size == 0) { query->size = size; return 0; }
    return fill((void *)query->data, query->size, from, size);
}

int ioctl(int handle, unsigned long request, ...) {
    va_list rest;
    va_start(rest, request);
    void *data = va_arg(rest, void *);
    va_end(rest);
    if (request != 0xc0406400 && request != 0xc0106479 && request != 0xc0286440)
        return ((int (*)(int, unsigned long, void *))dlsym(RTLD_NEXT, "ioctl"))(handle, request, data);
    if (is("interrupted") && calls++ % 3 != 2) { errno = calls % 2 ? EINTR : EAGAIN; return -1; }
    if (request == 0xc0406400) {
        struct version *version = data;
        const char *name = is("xe") ? "xe" : "i915";
        version->major = 1; version->minor = 6; version->patch = 0;
        memcpy(version->name, name, version->name_len < strlen(name) ? version->name_len : strlen(name));
        version->name_len = strlen(name);
        return 0;
    }
    if ((request == 0xc0106479) == is("xe")) { errno = ENOTTY; return -1; }
    return request == 0xc0106479 ? i915(data) : xe(data);
}
