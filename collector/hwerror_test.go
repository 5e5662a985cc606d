package collector

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
)

func testHWError() *hwError {
	return &hwError{pageTypes: map[uint64]string{13: "MF_MSG_DIRTY_LRU"}}
}

func hwRecord(what uint32, set func(*bpf.HWError)) *bpf.HWError {
	r := &bpf.HWError{H: bpf.Header{Version: bpf.WireVersion, Kind: bpf.KindHWError}, What: what}
	set(r)
	return r
}

func TestDecodeHWError(t *testing.T) {
	machineCheck := func(status uint64, vendor uint32) *bpf.HWError {
		return hwRecord(bpf.HWErrorMachineCheck, func(r *bpf.HWError) { r.Status, r.Vendor, r.CPU, r.Bank = status, vendor, 12, 5 })
	}
	checked := func(severity, register string) event.HWErrorData {
		return event.HWErrorData{What: "machine-check", Severity: severity, CPU: 12, Bank: 5, Register: register}
	}
	memory := func(severity uint32) *bpf.HWError {
		return hwRecord(bpf.HWErrorMemory, func(r *bpf.HWError) {
			r.Severity, r.Controller, r.Count = severity, 1, 3
			copy(r.Part[:], "DIMM_A1")
			copy(r.Detail[:], "memory read\x1b[2J error")
		})
	}
	pcie := func(severity uint32, status uint64) *bpf.HWError {
		return hwRecord(bpf.HWErrorPCIe, func(r *bpf.HWError) {
			r.Severity, r.Status = severity, status
			copy(r.Part[:], "0000:01:00.0")
		})
	}
	page := func(kind, result uint32) *bpf.HWError {
		return hwRecord(bpf.HWErrorPage, func(r *bpf.HWError) { r.PFN, r.Type, r.Result = 0x12345, kind, result })
	}
	for _, c := range []struct {
		r       *bpf.HWError
		want    event.HWErrorData
		subject string
	}{
		{machineCheck(0x8c00000000000108, 0), checked("corrected", "8c00000000000108"), "CPU 12"},
		{machineCheck(0xbc00000000000108, 0), checked("uncorrected", "bc00000000000108"), "CPU 12"},
		{machineCheck(0xbe00000000000108, 2), checked("fatal", "be00000000000108"), "CPU 12"},
		{machineCheck(1<<44, 2), checked("deferred", "0000100000000000"), "CPU 12"},
		{machineCheck(1<<44, 0), checked("corrected", "0000100000000000"), "CPU 12"}, // Intel counts corrected errors there
		{memory(0), event.HWErrorData{What: "memory", Severity: "corrected", Part: "DIMM_A1", Controller: "MC1", Errors: 3, Detail: `memory read\x1b[2J error`}, "DIMM_A1"},
		{memory(3), event.HWErrorData{What: "memory", Severity: "fatal", Part: "DIMM_A1", Controller: "MC1", Errors: 3, Detail: `memory read\x1b[2J error`}, "DIMM_A1"},
		{memory(99), event.HWErrorData{What: "memory", Part: "DIMM_A1", Controller: "MC1", Errors: 3, Detail: `memory read\x1b[2J error`}, "DIMM_A1"},
		{page(13, 3), event.HWErrorData{What: "page", Severity: "uncorrected", Page: "0x12345", Detail: "dirty lru", Result: "Recovered"}, "page 0x12345"},
		{page(99, 7), event.HWErrorData{What: "page", Severity: "uncorrected", Page: "0x12345", Detail: "type 99", Result: "7"}, "page 0x12345"},
		{pcie(2, 1<<6|1<<13|1<<30), event.HWErrorData{What: "pcie", Severity: "corrected", Part: "0000:01:00.0", Register: "40002040", Detail: "Bad TLP, Advisory Non-Fatal, bit 30"}, "0000:01:00.0"},
		{pcie(0, 1<<14), event.HWErrorData{What: "pcie", Severity: "uncorrected", Part: "0000:01:00.0", Register: "00004000", Detail: "Completion Timeout"}, "0000:01:00.0"},
		{pcie(1, 0), event.HWErrorData{What: "pcie", Severity: "fatal", Part: "0000:01:00.0", Register: "00000000"}, "0000:01:00.0"},
		{hwRecord(bpf.HWErrorDeviceHealth, func(r *bpf.HWError) {
			copy(r.Reporter[:], "fw_fatal")
			copy(r.Detail[:], "FW fatal error")
		}), event.HWErrorData{What: "device-health", Reporter: "fw_fatal", Detail: "FW fatal error"}, "fw_fatal"},
	} {
		var ev event.Event
		if ok, err := testHWError().decode(&c.r.H, rawOf(c.r), &ev); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if diff := cmp.Diff(&c.want, ev.HWError); diff != "" || ev.Kind != event.HWError || ev.Subject() != c.subject {
			t.Errorf("%s of %q: %s", ev.Kind, ev.Subject(), diff)
		}
		if f := ev.Facts(); f.Verdict != c.want.Severity || !strings.HasSuffix(f.Evidence[0], c.subject) {
			t.Errorf("facts %+v", f)
		}
	}
}

func FuzzDecodeHWError(f *testing.F) {
	for what := range uint32(6) {
		f.Add(rawOf(hwRecord(what, func(r *bpf.HWError) { r.Status, r.Part[0] = ^uint64(0), 0x9b })))
	}
	f.Add([]byte{})
	d := testHWError()
	f.Fuzz(func(t *testing.T, raw []byte) {
		var ev event.Event
		ok, err := d.decode(&bpf.Header{}, alignedCopy(raw), &ev)
		if err != nil {
			if !errors.Is(err, bpf.ErrMalformed) || ok {
				t.Fatal(ok, err)
			}
			return
		}
		h := ev.HWError
		checkShown(t, h.Severity, h.Part, h.Register, h.Page, h.Result, h.Reporter, h.Detail, ev.Subject())
	})
}
