"""Huawei Ascend NPUs."""

from vllm_probe.core.plugin import API_VERSION, ContainerAccess, VendorPlugin

PLUGIN = VendorPlugin(
    api_version=API_VERSION,
    name="ascend",
    device_types=("ascend", "npu"),
    probe="vllm_probe.vendors.ascend.probe:probe",
    adapter="vllm_probe.vendors.ascend.adapter:AscendAdapter",
    health="vllm_probe.vendors.ascend.lib:health",
    pci_vendors=(0x19E5,),
    signs=("/dev/davinci[0-9]*",),
    container=ContainerAccess(
        nodes=("/dev/davinci0", "/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"),
        mounts=(
            "/usr/local/dcmi",
            "/usr/local/bin/npu-smi",
            "/usr/local/Ascend/driver/lib64",
            "/usr/local/Ascend/driver/version.info",
            "/etc/ascend_install.info",
        ),
        shares_ipc=True,
        # https://www.hiascend.com/document/detail/en/mindcluster/730/clustersched/schedulingug/dlruntime_ug_007.html
        resources={"310p*": "huawei.com/Ascend310P", "*": "huawei.com/Ascend910"},
    ),
)
