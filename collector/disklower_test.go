package collector

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kernosis/kernosis/bpf"
	"github.com/kernosis/kernosis/collector/event"
)

// volumeError returns an error of a volume, at a time since boot.
func volumeError(dev uint32, at time.Duration) *bpf.DiskIO {
	r := partitionError()
	r.H.BootNS = uint64(at)
	r.Dev, r.Disk, r.Start, r.Flags = dev, dev, 0, bpf.DiskIOStatus|bpf.DiskIOBio
	copy(r.DiskName[:], fmt.Sprintf("dm-%d", dev&0xff))
	return r
}

func TestDiskIOFromBelow(t *testing.T) {
	const dm0, dm1, dm2, other = 253 << 20, 253<<20 | 1, 253<<20 | 2, 253<<20 | 9
	disk := func(at time.Duration) *bpf.DiskIO {
		r := partitionError()
		r.H.BootNS = uint64(at)
		return r
	}
	path := func(number uint32) *bpf.DiskIO {
		r := pathError(number)
		r.H.BootNS = uint64(time.Minute)
		return r
	}
	tests := []struct {
		name    string
		records []*bpf.DiskIO
		want    string // of the last one
	}{
		{"volume over a partition", []*bpf.DiskIO{disk(time.Minute), volumeError(dm0, time.Minute+50*time.Microsecond)}, "sda2"},
		{"volume over a volume", []*bpf.DiskIO{disk(time.Minute), volumeError(dm0, time.Minute), volumeError(dm1, time.Minute)}, "sda2"},
		{"volume over a volume whose own error it is", []*bpf.DiskIO{volumeError(dm0, time.Minute), volumeError(dm1, time.Minute)}, "dm-0"},
		{"volume over a multipath NVMe disk", []*bpf.DiskIO{path(0), volumeError(dm2, time.Minute)}, "nvme0n1"},
		{"volume over one whose path has a number", []*bpf.DiskIO{path(259<<20 | 2), volumeError(dm2, time.Minute)}, "nvme0n1"},
		{"its own", []*bpf.DiskIO{volumeError(dm0, time.Minute)}, ""},
		{"its own again", []*bpf.DiskIO{volumeError(dm0, time.Minute), volumeError(dm0, time.Minute)}, ""},
		{"long after", []*bpf.DiskIO{disk(time.Minute), volumeError(dm0, time.Minute+lowerWithin+1)}, ""},
		{"before", []*bpf.DiskIO{disk(time.Minute), volumeError(dm0, time.Minute-1)}, ""},
		{"of a disk that is not below it", []*bpf.DiskIO{disk(time.Minute), volumeError(other, time.Minute)}, ""},
		{"a disk is no volume", []*bpf.DiskIO{volumeError(dm0, time.Minute), disk(time.Minute)}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := testDiskIO(t)
			var ev event.Event
			for _, r := range tt.records {
				if ok, err := d.decode(&r.H, rawOf(r), &ev); !ok || err != nil {
					t.Fatal(ok, err)
				}
			}
			if ev.DiskIO.Lower != tt.want {
				t.Errorf("from %q, want %q", ev.DiskIO.Lower, tt.want)
			}
		})
	}
}

// Neither the failed devices nor the volumes looked up may grow without bound, and a volume that
// changed is looked up again.
func TestLowerErrorsAreBounded(t *testing.T) {
	env := diskEnvironment(t)
	synctest.Test(t, func(t *testing.T) {
		l := newLowerErrors(env.fs)
		for dev := range uint32(3 * maxFailed) {
			l.note(dev, dev, 1, "x")
			l.of(dev, 1)
		}
		if len(l.failed) > maxFailed+1 || len(l.lower) > maxFailed {
			t.Errorf("%d errors and %d volumes remembered", len(l.failed), len(l.lower))
		}
		const dm0 = 253 << 20
		l.lower[dm0] = lowerDevices{at: time.Now()}
		if got := l.devices(dm0); len(got) != 0 {
			t.Errorf("looked up within the second: %v", got)
		}
		time.Sleep(lowerFresh)
		if got := l.devices(dm0); len(got) != 1 || got[0] != 8<<20|2 {
			t.Errorf("after it: %v, want 8:2", got)
		}
	})
}
