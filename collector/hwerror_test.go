package collector

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
	"github.com/kernosis/kernosis/collector/hostfs"
)

func testHWError() *hwError {
	return &hwError{pageTypes: map[uint64]string{13: "MF_MSG_DIRTY_LRU"}, floods: map[event.HWErrorData]*hwFlood{}}
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

// A device with a flood of errors has a bounded number of events, which count each error.
func TestHWErrorFlood(t *testing.T) {
	d, env := testHWError(), diskEnvironment(t)
	s := &stem{name: bpf.StemHWError, env: env, log: env.log, source: "bpf/hwerror", decoder: decoder{decode: d.decode}}
	var got []string
	emit := func(ev *event.Event) {
		if ev.BootTime == 0 || ev.Time.IsZero() || ev.Source != "bpf/hwerror" {
			t.Errorf("incomplete event %+v", ev)
		}
		text := fmt.Sprintf("%d of %s, %s", ev.Occurrences(), ev.Subject(), ev.HWError.Severity)
		if n := len(got); n > 0 && strings.HasSuffix(got[n-1], " x "+text) {
			var before int
			fmt.Sscan(got[n-1], &before)
			got[n-1] = fmt.Sprintf("%d x %s", before+1, text)
			return
		}
		got = append(got, "1 x "+text)
	}
	start := hostfs.BootTime()
	fail := func(n int, after time.Duration, part string, severity uint32) {
		for range n {
			s.handle(rawOf(hwRecord(bpf.HWErrorPCIe, func(r *bpf.HWError) {
				r.H.Size, r.H.BootNS = uint32(unsafe.Sizeof(*r)), uint64(start+after)
				r.Severity, r.Status = severity, 1<<6
				copy(r.Part[:], part)
			})), emit)
		}
	}
	poll := func() {
		t.Helper()
		if every, err := d.poll(t.Context(), time.Now(), emit); every != 5*time.Second || err != nil {
			t.Errorf("next poll after %s: %v", every, err)
		}
	}
	const corrected, fatal = 2, 1
	fail(1000, 0, "0000:01:00.0", corrected)
	fail(3, time.Second, "0000:02:00.0", corrected)
	fail(1, time.Second, "0000:01:00.0", fatal)
	poll()
	poll()
	fail(50, 59*time.Second, "0000:01:00.0", corrected)
	fail(101, time.Minute, "0000:01:00.0", corrected)
	if err := d.end(emit); err != nil {
		t.Error(err)
	}
	want := []string{
		"100 x 1 of 0000:01:00.0, corrected",
		"3 x 1 of 0000:02:00.0, corrected",
		"1 x 1 of 0000:01:00.0, fatal",
		"1 x 900 of 0000:01:00.0, corrected",
		"100 x 1 of 0000:01:00.0, corrected",
		"1 x 51 of 0000:01:00.0, corrected",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// What is remembered of floods is bounded, and forgotten once they are over.
func TestHWErrorFloodsAreBounded(t *testing.T) {
	d := testHWError()
	past := hostfs.BootTime() - 2*hwFloodWithin
	for i := range maxHWFloods + 10 {
		r := hwRecord(bpf.HWErrorPage, func(r *bpf.HWError) { r.H.BootNS, r.PFN = uint64(past), uint64(i) })
		for range hwFloodEvents {
			if ok, err := d.decode(&r.H, rawOf(r), &event.Event{}); !ok || err != nil {
				t.Fatal(i, ok, err)
			}
		}
		if i == 0 || i > maxHWFloods {
			if ok, err := d.decode(&r.H, rawOf(r), &event.Event{}); ok != (i > 0) || err != nil {
				t.Error(i, ok, err)
			}
		}
	}
	var times []uint64
	for _, want := range []int{1, 0} {
		if _, err := d.poll(t.Context(), time.Now(), func(ev *event.Event) { times = append(times, ev.Times) }); err != nil {
			t.Fatal(err)
		}
		if len(d.floods) != want {
			t.Errorf("%d floods are remembered, want %d", len(d.floods), want)
		}
	}
	if !slices.Equal(times, []uint64{1}) {
		t.Errorf("reported %d times", times)
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
		if !ok {
			return // one of a flood
		}
		h := ev.HWError
		checkShown(t, h.Severity, h.Part, h.Register, h.Page, h.Result, h.Reporter, h.Detail, ev.Subject())
	})
}
