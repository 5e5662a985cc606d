package bpf

import (
	"errors"
	"fmt"
	"structs"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// StemDiskIO: a block device answered a request with an error.
const StemDiskIO = "diskio"

// HookDiskIOBio is the on-demand hook of [StemDiskIO] for bio-based devices (dm, md, NVMe with
// several paths, zram). It runs for each of their bios, so attach it only while such exist.
const HookDiskIOBio = "bio"

func diskio() Stem {
	var own *ebpf.CollectionSpec
	return Stem{
		Name:   StemDiskIO,
		object: _DiskioBytes,
		spec:   LoadDiskio,
		configure: func(spec *ebpf.CollectionSpec, k *Kernel) error {
			own = spec
			isStatus, err := requestErrorIsStatus(k)
			if err != nil {
				return err
			}
			return spec.Variables[DiskioVarErrorIsStatus].Set(isStatus)
		},
		hooks: []hook{
			{name: "request", variants: []variant{
				{program: DiskioProgRequestRaw, attach: rawTracepoint("block_rq_error")},
				{program: DiskioProgCompleteRaw, attach: rawTracepoint("block_rq_complete"), usable: func(k *Kernel) error {
					bit, err := quietBit(k)
					if err != nil {
						return err
					}
					return own.Variables[DiskioVarQuietBit].Set(bit)
				}},
			}},
			{name: HookDiskIOBio, optional: true, onDemand: true, variants: []variant{
				{program: DiskioProgBioRaw, attach: rawTracepoint("block_bio_complete")},
			}},
		},
		takeCounts: takeStorms,
	}
}

// requestErrorIsStatus reports whether request tracepoints pass a blk_status_t. Before v5.16 they
// passed an errno. block_rq_error is younger than that.
func requestErrorIsStatus(k *Kernel) (bool, error) {
	args, ok := k.TracepointArgs("block_rq_complete")
	if !ok || len(args) < 3 {
		return false, fmt.Errorf("tracepoint block_rq_complete: not in BTF")
	}
	t, ok := args[1].Type.(*btf.Typedef)
	return ok && t.Name == "blk_status_t", nil
}

// quietBit returns the bit of requests whose errors are not reported, as in the kernel's
// block_rq_error.
func quietBit(k *Kernel) (uint32, error) {
	if _, ok := k.TracepointArgs("block_rq_error"); !ok {
		return 11, nil // from v4.10 to v6.11
	}
	names, err := k.EnumNames("rqf_flags") // v6.13; without a name in v6.12
	if err != nil {
		return 0, fmt.Errorf("bit of RQF_QUIET: %w", err)
	}
	for bit, name := range names {
		if name == "__RQF_QUIET" {
			return uint32(bit), nil
		}
	}
	return 0, errors.New("enum rqf_flags has no __RQF_QUIET")
}

// DiskIO flags (enum kn_diskio_flags).
const (
	DiskIOStatus    = 1 << iota // Error is a blk_status_t, else a positive errno
	DiskIOBio                   // from a bio-based device
	DiskIOReadAhead             // speculative: the real read follows
	DiskIOFailFast              // the submitter handles failures: multipath, RAID, read-ahead
	DiskIOPreflush              // the device's cache is flushed first
	DiskIOIssuer                // Issuer is below the root cgroup, so it is meaningful
)

// Operations (enum req_op) that have kept their number on every kernel.
const (
	DiskOpRead        = 0
	DiskOpWrite       = 1
	DiskOpFlush       = 2
	DiskOpDiscard     = 3
	DiskOpWriteZeroes = 9
)

// DiskIO is struct kn_diskio. Dev and Disk are the kernel's dev_t: 12 bits major, 20 bits minor.
type DiskIO struct {
	_        structs.HostLayout
	H        Header
	Sector   uint64 // 512-byte units, from the start of the whole disk
	Start    uint64 // first sector of the partition; 0: the whole disk
	Dev      uint32 // partition or disk; 0: a hidden disk, before v6.1
	Disk     uint32 // whole disk
	Bytes    uint32
	Error    uint32
	Op       uint8
	Flags    uint8
	Pad      [6]uint8
	DiskName [32]byte
	Issuer   Chain // the cgroup that the I/O is charged to
}

// DiskErrorKind is struct storm_kind: what errors of a storm have in common.
type DiskErrorKind struct {
	_      structs.HostLayout
	Issuer uint64 // id of the cgroup; 0: not known
	Dev    uint32
	Disk   uint32
	Error  uint32
	Op     uint8
	Flags  uint8 // without DiskIOIssuer
	Pad    [2]uint8
	// DiskName is padded with NUL.
	DiskName [32]byte
}

// Kind returns the fields that the record shares with the others of its storm.
func (d *DiskIO) Kind() DiskErrorKind {
	k := DiskErrorKind{Dev: d.Dev, Disk: d.Disk, Error: d.Error, Op: d.Op, Flags: d.Flags &^ DiskIOIssuer, DiskName: d.DiskName}
	if d.Issuer.Levels() > 0 {
		k.Issuer = d.Issuer.ID[0]
	}
	return k
}

// Record returns a record with the fields that are known from the kind alone.
func (k *DiskErrorKind) Record() DiskIO {
	d := DiskIO{Dev: k.Dev, Disk: k.Disk, Error: k.Error, Op: k.Op, Flags: k.Flags, DiskName: k.DiskName}
	if k.Issuer != 0 {
		d.Flags |= DiskIOIssuer
		d.Issuer.Depth, d.Issuer.Truncated, d.Issuer.ID[0] = 1, 1, k.Issuer
	}
	return d
}

// diskStorm is struct storm.
type diskStorm struct {
	_       structs.HostLayout
	Began   uint64
	Records uint64
	More    uint64
}

// DiskErrors counts the errors of a kind that got no record and are not reported yet.
type DiskErrors struct {
	Kind DiskErrorKind
	N    uint64

	total uint64
}

// Maps of diskio, besides those of all stems.
const (
	mapStorms         = "storms"
	mapStormsReported = "storms_told"
)

// stormKindOld is the age from which a kind of disk errors may be deleted when the map fills up.
const stormKindOld = 10 * time.Minute

// UnrecordedDiskErrors returns the errors of storms that are not reported yet, of this run or of an
// earlier one that left its pins. When the map is half full, it deletes old kinds whose errors are
// all reported. now is the time since boot.
func (l *Loaded) UnrecordedDiskErrors(now time.Duration) ([]DiskErrors, error) {
	all, err := contents[DiskErrorKind, diskStorm](l.maps[mapStorms])
	if err != nil {
		return nil, fmt.Errorf("read storms of disk errors: %w", err)
	}
	var out []DiskErrors
	var old []DiskErrorKind
	for kind, storm := range all {
		reported, err := reportedStorm(l.maps[mapStormsReported], &kind)
		if err != nil {
			return out, err
		}
		if n := unreported(storm.More, reported); n > 0 {
			out = append(out, DiskErrors{Kind: kind, N: n, total: storm.More})
		} else if time.Duration(storm.Began)+stormKindOld < now { //nolint:gosec // nanoseconds since boot
			old = append(old, kind)
		}
	}
	if len(all) < int(l.maps[mapStorms].MaxEntries()/2) {
		return out, nil
	}
	for i := range old {
		// Reported first: if the agent is killed in between, errors are reported twice, not never.
		for _, m := range []string{mapStormsReported, mapStorms} {
			if err := l.maps[m].Delete(&old[i]); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
				return out, fmt.Errorf("delete a kind of disk errors: %w", err)
			}
		}
	}
	return out, nil
}

// reportedStorm returns how many of a kind's errors are reported, minus what other builds counted.
func reportedStorm(notes *ebpf.Map, kind *DiskErrorKind) (n uint64, err error) {
	if err := notes.Lookup(kind, &n); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return 0, fmt.Errorf("read storms of disk errors: %w", err)
	}
	return n, nil
}

// ReportedDiskErrors records that these errors were reported. If the agent is killed before, they
// are reported twice rather than never.
func (l *Loaded) ReportedDiskErrors(e DiskErrors) error {
	if err := l.maps[mapStormsReported].Put(&e.Kind, e.total); err != nil {
		return fmt.Errorf("record a storm of disk errors: %w", err)
	}
	return nil
}
