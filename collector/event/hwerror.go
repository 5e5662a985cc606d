package event

import (
	"strconv"
)

// HWError: hardware reported an error.
const HWError Kind = "hwerror"

// Values of HWErrorData.What.
const (
	HWMachineCheck = "machine-check" // a CPU reports it
	HWMemory       = "memory"        // a memory controller reports it
	HWPage         = "page"          // the kernel takes a page with an uncorrected memory error out of use
	HWPCIe         = "pcie"          // a PCI Express device reports it
	HWDeviceHealth = "device-health" // a health reporter (devlink), mostly of a network card
)

// Values of HWErrorData.Severity.
const (
	HWCorrected   = "corrected"
	HWDeferred    = "deferred" // uncorrected, in data that nobody has used yet
	HWUncorrected = "uncorrected"
	HWFatal       = "fatal"
	HWInfo        = "info"
)

// HWErrorData is the payload of [HWError]. Only the fields of its What are set.
type HWErrorData struct {
	What       string `json:"what"`
	Severity   string `json:"severity,omitempty"`   // empty: not reported
	Part       string `json:"part,omitempty"`       // PCI address or name of the device; memory: label of the module
	CPU        uint32 `json:"cpu,omitempty"`        // of a machine check
	Bank       uint32 `json:"bank,omitempty"`       // of a machine check
	Register   string `json:"register,omitempty"`   // status of the bank, or of the PCI Express device, in hexadecimal
	Controller string `json:"controller,omitempty"` // of memory: MC0
	Errors     uint32 `json:"errors,omitempty"`     // of memory: how many at once
	Page       string `json:"page,omitempty"`       // its frame number: 0x12345
	Result     string `json:"result,omitempty"`     // of a page: Ignored, Failed, Delayed, Recovered
	Reporter   string `json:"reporter,omitempty"`   // of a device's health
	Detail     string `json:"detail,omitempty"`     // the driver's words, the kind of PCI Express error, or the page's use
}

// subject returns what the error is of: a device, memory module, page or CPU.
func (d *HWErrorData) subject() string {
	switch {
	case d.Part != "":
		return d.Part
	case d.Page != "":
		return "page " + d.Page
	case d.What == HWMachineCheck:
		return "CPU " + strconv.FormatUint(uint64(d.CPU), 10)
	}
	return d.Controller + d.Reporter
}

func (d *HWErrorData) facts(_ *Event, f *Facts) {
	f.Verdict = d.Severity
	f.add("%s error of %s", d.What, d.subject())
	if d.What == HWMachineCheck {
		f.add("bank %d", d.Bank)
	}
	for _, of := range [][2]string{
		{"status register", d.Register}, {"controller", d.Controller}, {"recovery", d.Result}, {"reporter", d.Reporter}, {"detail", d.Detail},
	} {
		if of[1] != "" {
			f.add("%s: %s", of[0], of[1])
		}
	}
	if d.Errors > 1 {
		f.add("%d errors", d.Errors)
	}
}

func hwErrorFields() []*Field {
	field := fieldsOf("event.", func(e *Event) *HWErrorData { return e.HWError }, HWError)
	return []*Field{
		few(field("what", TypeString, "machine-check, memory, page, pcie, device-health", func(d *HWErrorData) Value { return text(d.What) })),
		few(field("severity", TypeString, "corrected, deferred, uncorrected, fatal, info",
			func(d *HWErrorData) Value { return text(d.Severity) })),
		field("part", TypeString, "PCI address or name of the device; memory: label of the module", func(d *HWErrorData) Value { return text(d.Part) }),
		field("cpu", TypeInt, "machine-check: the CPU", func(d *HWErrorData) Value { return number(d.CPU) }),
		field("bank", TypeInt, "machine-check: its bank", func(d *HWErrorData) Value { return number(d.Bank) }),
		field("register", TypeString, "machine-check, pcie: status register, hexadecimal", func(d *HWErrorData) Value { return text(d.Register) }),
		few(field("controller", TypeString, "memory: the controller, such as MC0", func(d *HWErrorData) Value { return text(d.Controller) })),
		field("errors", TypeInt, "memory: errors reported at once", func(d *HWErrorData) Value { return number(d.Errors) }),
		field("page", TypeString, "page: its frame number, such as 0x12345", func(d *HWErrorData) Value { return text(d.Page) }),
		few(field("result", TypeString, "page: Ignored, Failed, Delayed, Recovered", func(d *HWErrorData) Value { return text(d.Result) })),
		few(field("reporter", TypeString, "device-health: the health reporter", func(d *HWErrorData) Value { return text(d.Reporter) })),
		field("detail", TypeString, "the driver's words, the kind of PCI Express error, or the page's use", func(d *HWErrorData) Value { return text(d.Detail) }),
	}
}
