"""Intel Gaudi accelerators."""

from vllm_probe.core.plugin import API_VERSION, ContainerAccess, VendorPlugin

PLUGIN = VendorPlugin(
    api_version=API_VERSION,
    name="gaudi",
    device_types=("gaudi", "hpu"),
    probe="vllm_probe.vendors.gaudi.probe:probe",
    pci_vendors=(0x1DA3,),
    signs=("/dev/hl[0-9]*",),
    container=ContainerAccess(
        env={"HABANA_VISIBLE_DEVICES": "all", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"},
        runtime="habana",
        shares_ipc=True,
    ),
)
