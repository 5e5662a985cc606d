package event

import (
	"strings"

	"github.com/kernosis/kernosis/collector/display"
)

// DiskIO: a block device completed a request or bio with an error.
const DiskIO Kind = "diskio"

// DiskIOData is the payload of [DiskIO].
type DiskIOData struct {
	Op        string `json:"op"`     // read, write, flush, discard, write-zeroes, zone-append, other
	Sector    uint64 `json:"sector"` // 512-byte units, from the start of the device that failed
	Bytes     uint32 `json:"bytes"`
	Error     string `json:"error"`               // errno name: EIO, ENOSPC, ETIMEDOUT …
	Status    string `json:"status,omitempty"`    // blk_status name where the kernel has one: IOERR, MEDIUM, TIMEOUT …
	ReadAhead bool   `json:"readAhead,omitempty"` // speculative: the real read follows
	Bio       bool   `json:"bio,omitempty"`       // from a bio-based device (dm, md, NVMe with several paths, zram)
	Lower     string `json:"lower,omitempty"`     // Bio: name of the device below whose error it is; empty: the volume's own
}

func (d *DiskIOData) facts(ev *Event, f *Facts) {
	f.Verdict = d.Error
	f.add("%s of %s at sector %d: %s", d.Op, display.Bytes(uint64(d.Bytes)), d.Sector, strings.TrimSuffix(d.Error+" "+d.Status, " "))
	if d.Lower != "" {
		f.add("the error comes from %s below it", d.Lower)
	}
	if ev.Cgroup != nil && ev.Cgroup.Path != "" {
		f.add("requested by %s", ev.Cgroup.Path)
	}
	f.mounts(ev.Device)
}

func diskIOFields() []*Field {
	disk := fieldsOf("event.", func(e *Event) *DiskIOData { return e.DiskIO }, DiskIO)
	return []*Field{
		few(disk("op", TypeString, "read, write, flush, discard, write-zeroes, zone-append, other", func(d *DiskIOData) Value { return text(d.Op) })),
		disk("sector", TypeInt, "512-byte units from the start of the device", func(d *DiskIOData) Value { return number(d.Sector) }),
		disk("bytes", TypeInt, "size of the request", func(d *DiskIOData) Value { return number(d.Bytes) }),
		few(disk("error", TypeString, "errno name: EIO, ENOSPC …", func(d *DiskIOData) Value { return text(d.Error) })),
		disk("readAhead", TypeBool, "speculative read", func(d *DiskIOData) Value { return boolean(d.ReadAhead) }),
		disk("bio", TypeBool, "bio-based device (dm, md, multipath NVMe, zram)", func(d *DiskIOData) Value { return boolean(d.Bio) }),
		few(disk("lower", TypeString, "of a volume (dm, md): the underlying device that failed; empty: the volume itself", func(d *DiskIOData) Value { return text(d.Lower) })),
	}
}
