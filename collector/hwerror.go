package collector

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// hwError decodes errors that hardware reports.
type hwError struct {
	pageTypes map[uint64]string // enum mf_action_page_type, which differs between kernels
	// Floods of errors by kind. A kind is an error without the fields that may differ each time.
	floods map[event.HWErrorData]*hwFlood

	// The event points to it; it is reused for the next event.
	data event.HWErrorData
}

// newHWError returns a decoder for a kernel. Without CONFIG_MEMORY_FAILURE the kernel has no
// page types.
func newHWError(k *bpf.Kernel) *hwError {
	types, _ := k.EnumNames("mf_action_page_type")
	return &hwError{pageTypes: types, floods: map[event.HWErrorData]*hwFlood{}}
}

// A bad slot can report thousands of errors a second, which would fill the journal. The first
// hwFloodEvents errors of a kind in each hwFloodWithin are reported one by one, and the others
// together, every hwFloodEvery. A killed agent loses errors that it has not reported yet. When
// maxHWFloods kinds are tracked, errors of further kinds are all reported one by one.
const (
	hwFloodEvents = 100
	hwFloodWithin = time.Minute
	hwFloodEvery  = lossEvery // one wake-up serves both
	maxHWFloods   = 256
)

// hwFlood counts the errors of one kind.
type hwFlood struct {
	began  time.Duration // since boot, of the current hwFloodWithin
	events int           // reported one by one in it
	more   uint64        // gathered since the latest report
	latest event.HWErrorData
}

func (h *hwError) decode(_ *bpf.Header, raw []byte, ev *event.Event) (bool, error) {
	r, err := bpf.View[bpf.HWError](raw)
	if err != nil {
		return false, err
	}
	text := func(b []byte) string { return display.Safe(string(bpf.CString(b)), 128) }
	d := event.HWErrorData{Part: text(r.Part[:]), Detail: text(r.Detail[:])}
	switch r.What {
	case bpf.HWErrorMachineCheck:
		d.What, d.Severity = event.HWMachineCheck, machineCheckSeverity(r.Status, r.Vendor)
		d.CPU, d.Bank, d.Register = r.CPU, r.Bank, fmt.Sprintf("%016x", r.Status) // as the kernel prints it
	case bpf.HWErrorMemory:
		d.What, d.Severity = event.HWMemory, memorySeverity(r.Severity)
		d.Controller, d.Errors = fmt.Sprintf("MC%d", r.Controller), r.Count
	case bpf.HWErrorPage:
		d.What, d.Severity = event.HWPage, event.HWUncorrected
		d.Page, d.Detail, d.Result = fmt.Sprintf("%#x", r.PFN), h.pageType(r.Type), pageResult(r.Result)
	case bpf.HWErrorPCIe:
		d.What, d.Severity = event.HWPCIe, pcieSeverity(r.Severity)
		d.Register, d.Detail = fmt.Sprintf("%08x", r.Status), pcieErrors(r.Status, d.Severity == event.HWCorrected)
	case bpf.HWErrorDeviceHealth:
		d.What, d.Reporter = event.HWDeviceHealth, text(r.Reporter[:])
	default:
		return false, fmt.Errorf("%w: hardware error %d", bpf.ErrMalformed, r.What)
	}
	if h.gather(&d, time.Duration(r.H.BootNS)) {
		return false, nil
	}
	h.data = d
	ev.Kind, ev.HWError = event.HWError, &h.data
	return true, nil
}

// gather counts an error, and reports whether it waits for the next poll.
func (h *hwError) gather(d *event.HWErrorData, at time.Duration) bool {
	kind := *d
	kind.Detail, kind.Errors = "", 0
	kind.Register = d.Register[max(len(d.Register)-8, 0):] // of a machine check the error code: above it are counters
	f := h.floods[kind]
	if f == nil {
		if len(h.floods) >= maxHWFloods {
			return false
		}
		f = &hwFlood{began: at}
		h.floods[kind] = f
	}
	if at-f.began >= hwFloodWithin {
		f.began, f.events = at, 0
	}
	if f.events < hwFloodEvents {
		f.events++
		return false
	}
	f.more++
	f.latest = *d
	return true
}

// end emits an event for all gathered errors of a kind, with the data of the latest one.
func (h *hwError) end(emit func(*event.Event)) error {
	for kind, f := range h.floods {
		ev := hostfs.Stamped(event.Event{Kind: event.HWError, Source: "bpf/" + bpf.StemHWError, Times: f.more, HWError: &f.latest})
		switch {
		case f.more > 0:
			emit(ev)
			f.more = 0
		case time.Duration(ev.BootTime)-f.began >= hwFloodWithin:
			delete(h.floods, kind)
		}
	}
	return nil
}

func (h *hwError) poll(_ context.Context, _ time.Time, emit func(*event.Event)) (time.Duration, error) {
	return hwFloodEvery, h.end(emit)
}

// machineCheckSeverity reads the bits of MCi_STATUS (asm/mce.h).
func machineCheckSeverity(status uint64, vendor uint32) string {
	const uncorrected, contextCorrupt, deferred = 1 << 61, 1 << 57, 1 << 44
	const amd, hygon = 2, 9
	switch {
	case status&uncorrected != 0 && status&contextCorrupt != 0:
		return event.HWFatal
	case status&uncorrected != 0:
		return event.HWUncorrected
	case status&deferred != 0 && (vendor == amd || vendor == hygon):
		return event.HWDeferred
	}
	return event.HWCorrected
}

// memorySeverity translates an enum hw_event_mc_err_type (linux/edac.h).
func memorySeverity(s uint32) string {
	all := []string{event.HWCorrected, event.HWUncorrected, event.HWDeferred, event.HWFatal, event.HWInfo}
	if int(s) < len(all) {
		return all[s]
	}
	return ""
}

// pcieSeverity translates AER_NONFATAL, AER_FATAL and AER_CORRECTABLE (linux/aer.h).
func pcieSeverity(s uint32) string {
	switch s {
	case 0:
		return event.HWUncorrected
	case 2:
		return event.HWCorrected
	}
	return event.HWFatal // also DPC_FATAL
}

// pageType returns what a page was used for, such as "dirty lru" for MF_MSG_DIRTY_LRU.
func (h *hwError) pageType(t uint32) string {
	name, ok := strings.CutPrefix(h.pageTypes[uint64(t)], "MF_MSG_")
	if !ok {
		return fmt.Sprintf("type %d", t)
	}
	return strings.ToLower(strings.ReplaceAll(name, "_", " "))
}

// pageResult returns the text that the kernel prints for an enum mf_result.
func pageResult(r uint32) string {
	all := []string{"Ignored", "Failed", "Delayed", "Recovered"}
	if int(r) < len(all) {
		return all[r]
	}
	return strconv.FormatUint(uint64(r), 10)
}

// pcieErrors names the bits of an AER status register (PCI Express Base Specification 7.8.4).
func pcieErrors(status uint64, corrected bool) string {
	names := map[int]string{
		4: "Data Link Protocol", 5: "Surprise Down", 12: "Poisoned TLP", 13: "Flow Control Protocol", 14: "Completion Timeout",
		15: "Completer Abort", 16: "Unexpected Completion", 17: "Receiver Overflow", 18: "Malformed TLP", 19: "ECRC",
		20: "Unsupported Request", 21: "ACS Violation", 22: "Uncorrectable Internal", 23: "MC Blocked TLP", 24: "AtomicOp Egress Blocked",
		25: "TLP Prefix Blocked", 26: "Poisoned TLP Egress Blocked",
	}
	if corrected {
		names = map[int]string{
			0: "Receiver Error", 6: "Bad TLP", 7: "Bad DLLP", 8: "REPLAY_NUM Rollover", 12: "Replay Timer Timeout", 13: "Advisory Non-Fatal",
			14: "Corrected Internal", 15: "Header Log Overflow",
		}
	}
	var found []string
	for bit := range 32 {
		if status&(1<<bit) == 0 {
			continue
		}
		name := names[bit]
		if name == "" {
			name = fmt.Sprintf("bit %d", bit)
		}
		found = append(found, name)
	}
	return display.Safe(strings.Join(found, ", "), 128)
}
