"""What xpu-smi of 1.x and 2.x prints, of cards that nobody has."""

import json

GIB, MIB = 1 << 30, 1 << 20

LIST_1 = json.dumps(
    {
        "device_list": [
            {
                "device_function_type": "physical",
                "device_id": 0,
                "device_name": "Intel(R) Data Center GPU Flex 170",
                "device_type": "GPU",
                "drm_device": "/dev/dri/card1",
                "pci_bdf_address": "0000:3a:00.0",
                "pci_device_id": "0x56c0",
                "uuid": "00000000-0000-0000-0000-000000000000",
                "vendor_name": "Intel(R) Corporation",
            },
            {"device_id": 1, "device_name": "", "pci_bdf_address": "0000:3B:00.0", "pci_device_id": "0x20a"},
        ]
    },
    indent=4,
)
ONE_1 = json.dumps(
    {
        "core_clock_rate_mhz": "2050",
        "device_id": 0,
        "device_name": "Intel(R) Data Center GPU Flex 170",
        "driver_version": "I915_23.10.32",
        "max_mem_alloc_size_byte": "4294959104",
        "memory_ecc_state": "enabled",
        "memory_free_size_byte": "14000000000",
        "memory_physical_size_byte": "15300820992",
        "number_of_eus": "512",
        "number_of_tiles": "1",
        "pci_bdf_address": "0000:3a:00.0",
        "serial_number": "unknown",
    }
)
LIST_2 = json.dumps(
    {
        "device_list": [
            {
                "device_id": 0,
                "device_name": "Intel(R) Arc(TM) Pro B60 Graphics",
                "device_state": "normal",
                "device_type": "Discrete GPU",
                "memory_physical_size": "24480.00 MiB",
                "memory_physical_size_byte": 24480 * MIB,
                "memory_free_size_byte": 24480 * MIB,
                "pci_bdf_address": "0000:83:00.0",
                "pci_device_id": "0xe211",
                "sku_type": "Production",
            }
        ]
    }
)
NONE_2 = '{\n    "device_list": null\n}\n'
ERROR = '{\n    "error": "Level Zero Initialization Error"\n}\n'
STATS_1 = json.dumps(
    {
        "device_id": 0,
        "device_level": [
            {"metrics_type": "XPUM_STATS_POWER", "value": 31.5, "avg": 31.0, "min": 30.0, "max": 33.0},
            {"metrics_type": "XPUM_STATS_GPU_FREQUENCY", "value": 0.0},
            {"metrics_type": "XPUM_STATS_GPU_CORE_TEMPERATURE", "value": 48.0},
        ],
        "tile_level": [
            {"tile_id": 0, "data_list": [{"metrics_type": "XPUM_STATS_MEMORY_USED", "value": 26.0}]},
            {"tile_id": 1, "data_list": [{"metrics_type": "XPUM_STATS_MEMORY_USED", "value": 14.0}]},
        ],
    }
)
STATS_2 = json.dumps(
    {
        "device_id": 0,
        "memory": {"used_mib": {"0": {"avg": 40.0, "min": 30.0, "max": 50.0, "current": 45.5}}},
        "power": {"gpu_power_w": {"avg": 20.0, "current": 22.25}},
        "frequency": {"gpu_frequency_mhz": {"0": {"current": 2400}}},
        "temperature": {"gpu_core_celsius": {"avg": 50.0, "min": 50, "max": 50, "current": 50}},
    }
)
QUERY = """\
index, name, pci.bus_id, memory.total [MiB], memory.used [MiB], memory.free [MiB], power.draw [W]
0, Intel(R) Arc(TM) Pro B60 Graphics, 0000:83:00.0, 24480, 1010.5, 23469.5, N/A
1, N/A, 0000:84:00.0, 24480 MiB, 0, 24480, 41.25
"""
DUMP = """\
Timestamp, DeviceId, GPU Power (W), GPU Frequency (MHz), GPU Memory Used (MiB)
06:14:46.000,    0, 14.61,    0,
06:14:46.000,    1, 15.00, 1300, 40.00
06:14:47.000,    0, 15.25, 2050, 30.50
"""
BOX_1 = """\
+-----------+--------------------------------------------------------------------------+
| Device ID | Device Information                                                       |
+-----------+--------------------------------------------------------------------------+
| 0         | Device Name: Intel(R) Data Center GPU Max 1550                           |
|           | Vendor Name: Intel(R) Corporation                                        |
|           | PCI BDF Address: 0000:29:00.0                                            |
|           | Core Clock Rate: 1600 MHz                                                |
|           |                                                                          |
|           | Memory Physical Size: 131072.00 MiB                                      |
|           | ECC State: disabled                                                      |
|           | Number of EUs: 1024                                                      |
|           | Number of Tiles: 2                                                       |
|           | Driver Version: unknown                                                  |
+-----------+--------------------------------------------------------------------------+
| 1         | Device Name: Intel(R) Data Center GPU Max 1550                           |
|           | PCI BDF Address: 0000:9a:00.0                                            |
+-----------+--------------------------------------------------------------------------+
"""
PLAIN_2 = """\

  Device ID     Device Information
  0             Device Type: Discrete GPU
                Device Name: Intel(R) Arc(TM) B580 Graphics
                Device State: survivability mode
                PCI Device ID: 0xe20b
                PCI BDF Address: 0000:03:00.0
                Driver Version: 17099999
                Memory Physical Size: 12216.00 MiB
                Memory Free Size: 12000.00 MiB
"""
STATS_TEXT = """\
+-----------------------------+------------------------------------------------+
| Device ID                   | 0                                              |
+-----------------------------+------------------------------------------------+
| GPU Power (W)               | Tile 0: 90, Tile 1: 95                         |
| GPU Frequency (MHz)         | Tile 0: 1600, Tile 1: 1550                     |
| GPU Core Temperature (C)    |                                                |
| GPU Memory Used (MiB)       | Tile 0: 26, Tile 1: 30                         |
+-----------------------------+------------------------------------------------+
"""
SUMMARY_2 = """\
+----------------------------------------------+----------------------------+------------------------+
|            Intel XPU-SMI v2.0    Driver: 1111                Level Zero: 1.30.0                    |
+----------------------------------------------+----------------------------+------------------------+
| GPU  Name                    Persistence-M   | Bus-Id            Disp.A   |   Volatile Uncorr. ECC |
| Fan              Temp  Pwr:Usage/Cap         | Memory-Usage               |   GPU-Util  Compute M. |
+----------------------------------------------+----------------------------+------------------------+
|   0  Intel(R) Arc(TM) Pro    Off             | 0000:83:00.0      Off      |               Disabled |
|      B60 Graphics                            |                            |                        |
| 30%               N/A  55W / 200W            | 1000MiB / 24480MiB         |      N/A       Default |
+----------------------------------------------+----------------------------+------------------------+
|   1                          Off             | 0000:84:00.0      Off      |               Disabled |
| N/A               N/A  N/A / 200W            | 0MiB / 24480MiB            |      N/A       Default |
+----------------------------------------------+----------------------------+------------------------+
"""
ALL = (LIST_1, ONE_1, LIST_2, NONE_2, ERROR, STATS_1, STATS_2, QUERY, DUMP, BOX_1, PLAIN_2, STATS_TEXT, SUMMARY_2)
