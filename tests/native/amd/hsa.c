/* A libhsa-runtime64.so.1; FAKE_hsa_init in the environment is its status, `hang` or `crash`. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef NO_INIT
int hsa_init(void) {
    const char *said = getenv("FAKE_hsa_init");
    if (!said) return 0;
    if (!strcmp(said, "hang")) for (;;) pause();
    if (!strcmp(said, "crash")) raise(SIGSEGV);
    return atoi(said);
}
#endif
int hsa_shut_down(void) { return 0; }
