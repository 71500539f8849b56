/* A libdcmi.so with two cards: number 0 with one chip with HBM, number 3 with two chips with DDR, a controller and a processor.
 *
 * FAKE_<function> in the environment is the status that the function gives; `hang` and `crash` do that. FAKE_chip is the
 * status of everything that is asked of card 0. With -DOLD it has the names of the first drivers only. Layouts are those
 * of dcmi_interface_api.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct chip { char type[32], name[32], version[32]; unsigned cores; };
struct chip2 { char type[32], name[32], version[32]; unsigned cores; char npu[32]; };
struct pcie { unsigned device, vendor, subvendor, subdevice, bdf_device, bdf_bus, bdf_function; };
struct pcie2 { unsigned vendor, subvendor, device, subdevice; int domain; unsigned bus, dev, fn; unsigned char rest[32]; };
struct hbm { unsigned long long size; unsigned freq; unsigned long long used; int temp; unsigned rate; };
struct ddr {
    unsigned long long size, available;
    unsigned freq;
    unsigned long page, total, free;
    unsigned rate;
    unsigned char rest[60];
};
struct process { int pid; unsigned long bytes; };

static int entered = 0;

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

#define SAY(name) do { int s = status(#name); if (s) return s; if (!entered) return -8005; } while (0)
#define OF(name) do { SAY(name); if (card == 0 && status("chip")) return status("chip"); } while (0)

int dcmi_init(void) { int s = status("dcmi_init"); entered = !s; return s; }
int dcmi_get_driver_version(char *to, unsigned size) { SAY(dcmi_get_driver_version); snprintf(to, size, "24.1.rc2"); return 0; }
#ifdef OLD
int dcmi_get_card_num_list(int *count, int *list, int room) {
#else
int dcmi_get_card_list(int *count, int *list, int room) {
#endif
    SAY(dcmi_get_card_list);
    if (room < 2) return -8001;
    *count = 2; list[0] = 0; list[1] = 3;
    return 0;
}
int dcmi_get_device_num_in_card(int card, int *count) { SAY(dcmi_get_device_num_in_card); *count = card ? 4 : 1; return 0; }
int dcmi_get_device_type(int card, int chip, int *type) { SAY(dcmi_get_device_type); *type = chip < 2 ? 0 : chip - 1; return 0; }
int dcmi_get_device_chip_info(int card, int chip, struct chip *to) {
    OF(dcmi_get_device_chip_info);
    memset(to, 0, sizeof *to);
    strcpy(to->type, "Ascend"); strcpy(to->name, card ? "310P3" : "Ascend910"); to->cores = card ? 8 : 24;
    return 0;
}
int dcmi_get_device_pcie_info(int card, int chip, struct pcie *to) {
    OF(dcmi_get_device_pcie_info);
    *to = (struct pcie){card ? 0xd500 : 0xd803, 0x19e5, 0, 0, 0, card ? 0x41 : 0xc1, 0};
    return 0;
}
#ifndef OLD
int dcmi_get_device_chip_info_v2(int card, int chip, struct chip2 *to) {
    OF(dcmi_get_device_chip_info);
    memset(to, 0, sizeof *to);
    strcpy(to->name, card ? "310P3" : "Ascend910"); to->cores = card ? 8 : 24; strcpy(to->npu, card ? "NA" : "9392");
    return 0;
}
int dcmi_get_device_pcie_info_v2(int card, int chip, struct pcie2 *to) {
    OF(dcmi_get_device_pcie_info_v2);
    memset(to, 0, sizeof *to);
    *to = (struct pcie2){0x19e5, 0x19e5, card ? 0xd500 : 0xd803, 0, 1, card ? 0x41 : 0xc1, 0, 0, {0}};
    return 0;
}
int dcmi_get_device_hbm_info(int card, int chip, struct hbm *to) {
    OF(dcmi_get_device_hbm_info);
    if (card) return -8255;
    *to = (struct hbm){65536, 1600, 3000, 41, 2};
    return 0;
}
#endif
int dcmi_get_device_memory_info_v3(int card, int chip, struct ddr *to) {
    OF(dcmi_get_device_memory_info_v3);
    memset(to, 0, sizeof *to);
    to->size = card ? 44280 - chip : 0; to->available = card ? 40000 : 0; to->freq = 2100; to->total = 7200;
    return 0;
}
int dcmi_get_device_health(int card, int chip, unsigned *to) { OF(dcmi_get_device_health); *to = chip; return 0; }
int dcmi_get_device_logic_id(int *to, int card, int chip) { OF(dcmi_get_device_logic_id); *to = card ? chip : 2; return 0; }
int dcmi_get_device_phyid_from_logicid(unsigned logic, unsigned *to) {
    SAY(dcmi_get_device_phyid_from_logicid);
    *to = logic + 4;
    return 0;
}
int dcmi_get_device_utilization_rate(int card, int chip, int kind, unsigned *to) {
    OF(dcmi_get_device_utilization_rate);
    if (kind != 2) return -8001;
    *to = 17;
    return 0;
}
int dcmi_get_device_temperature(int card, int chip, int *to) { OF(dcmi_get_device_temperature); *to = -3; return 0; }
int dcmi_get_device_power_info(int card, int chip, int *to) { OF(dcmi_get_device_power_info); *to = card ? 0 : 1234; return 0; }
int dcmi_get_device_frequency(int card, int chip, int kind, unsigned *to) {
    OF(dcmi_get_device_frequency);
    *to = kind == 9 ? 1650 : 800;
    return 0;
}
int dcmi_get_device_resource_info(int card, int chip, struct process *rows, int *count) {
    OF(dcmi_get_device_resource_info);
    if (*count < 2) return -8001;
    *count = card ? 0 : 2;
    if (!card) { rows[0] = (struct process){4711, 1UL << 33}; rows[1] = (struct process){4712, 0}; }
    return 0;
}
