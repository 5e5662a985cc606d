package hostfs

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const mountstats = `device rootfs mounted on / with fstype rootfs
device /dev/vda1 mounted on /data with fstype ext4
device filer:/export mounted on /mnt/nfs with fstype nfs4 statvers=1.1
	opts:	rw,vers=4.2,rsize=1048576,namlen=255,hard,proto=tcp,timeo=600,retrans=2,sec=sys
	age:	120
	sec:	flavor=1,pseudoflavor=1
	events:	0 0 0
	bytes:	0 0 0
	RPC iostats version: 1.1  p/v: 100003/4 (nfs)
	xprt:	tcp 0 0 1 0 4 50 48 0 50 0 2 0 0
	xprt:	tcp 0 0 1 0 4 7 7 0 50 0 2 0 0
	per-op statistics
	        NULL: 1 1 0 44 24 0 0 0 0
	     GETATTR: 20 22 3 100 200 0 5 6 0

device old:/u mounted on /u with fstype nfs statvers=1.0
	RPC iostats version: 1.0  p/v: 100003/3 (nfs)
	xprt:	udp 901 1 30 29 0 30 0
	per-op statistics
	     GETATTR: 20 22 1 100 200 0 5 6
device short:/u mounted on /s with fstype nfs statvers=1.1
	xprt:	tcp 1 2
`

func TestParseNFSMounts(t *testing.T) {
	want := []NFSMount{
		{Source: "filer:/export", Path: "/mnt/nfs", FSType: "nfs4", Counted: true, Sends: 57, Receives: 55, Timeouts: 3},
		{Source: "old:/u", Path: "/u", FSType: "nfs", Counted: true, Sends: 30, Receives: 29, Timeouts: 1},
		{Source: "short:/u", Path: "/s", FSType: "nfs"},
	}
	if diff := cmp.Diff(want, ParseNFSMounts(mountstats)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := (FS{}).NFSMounts(); err != nil {
		t.Error(err)
	}
}

func FuzzParseNFSMounts(f *testing.F) {
	f.Add(mountstats)
	f.Fuzz(func(_ *testing.T, s string) { ParseNFSMounts(s) })
}
