package bpf

import (
	"structs"
)

// StemHWError: hardware reported an error.
const StemHWError = "hwerror"

func hwerror() Stem {
	of := func(tracepoint, program string) hook {
		return hook{name: tracepoint, ofFeature: true, variants: []variant{
			{program: program, attach: rawTracepoint(tracepoint), usable: builtIn(tracepoint)},
		}}
	}
	return Stem{
		Name:   StemHWError,
		object: _HwerrorBytes,
		spec:   LoadHwerror,
		hooks: []hook{
			of("mce_record", HwerrorProgMceRaw),               // CONFIG_X86_MCE
			of("mc_event", HwerrorProgMemoryRaw),              // CONFIG_RAS
			of("memory_failure_event", HwerrorProgPageRaw),    // CONFIG_MEMORY_FAILURE
			of("aer_event", HwerrorProgPcieRaw),               // CONFIG_PCIEAER
			of("devlink_health_report", HwerrorProgHealthRaw), // CONFIG_NET_DEVLINK
		},
	}
}

// What reported an error (enum kn_hwerror_what).
const (
	HWErrorMachineCheck = 1
	HWErrorMemory       = 2
	HWErrorPage         = 3
	HWErrorPCIe         = 4
	HWErrorDeviceHealth = 5
)

// HWError is struct kn_hwerror. Fields that a kind of error does not have are zero.
type HWError struct {
	_          structs.HostLayout
	H          Header
	What       uint32
	Severity   uint32 // memory: enum hw_event_mc_err_type; PCIe: AER_NONFATAL and so on
	Status     uint64 // machine check: MCi_STATUS; PCIe: the AER register less its mask
	PFN        uint64 // page: its frame number
	CPU        uint32 // machine check: which reports it
	Bank       uint32 // machine check
	Vendor     uint32 // machine check: X86_VENDOR_*
	Controller uint32 // memory: which reports it
	Count      uint32 // memory: errors
	Type       uint32 // page: enum mf_action_page_type, which differs between kernels
	Result     uint32 // page: enum mf_result
	Pad        uint32
	Part       [128]byte // memory: the module's label; else the device
	Detail     [128]byte // memory, device health: the driver's words
	Reporter   [32]byte  // device health
}
