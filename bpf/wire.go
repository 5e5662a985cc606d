package bpf

import (
	"bytes"
	"errors"
	"fmt"
	"structs"
	"unsafe"
)

// WireVersion is the version of the record layouts below (KN_WIRE_VERSION).
const WireVersion = 2

// Limits of the wire format, as in headers/wire.h.
const (
	chainLevels = 6
	chainName   = 96
)

// RecordKind identifies the record that follows a [Header].
type RecordKind uint16

// Record kinds (enum kn_kind).
const (
	KindCanary            RecordKind = 1
	KindOOMKill           RecordKind = 16
	KindHungTask          RecordKind = 32
	KindHungTaskResumed   RecordKind = 33
	KindDiskIO            RecordKind = 48
	KindFSError           RecordKind = 64
	KindSockFail          RecordKind = 80
	KindSockFailRecovered RecordKind = 81
	KindHWError           RecordKind = 96
)

// Header starts every record (struct kn_header).
type Header struct {
	_       structs.HostLayout
	Version uint16
	Kind    RecordKind
	Size    uint32
	BootNS  uint64
	CPU     uint32
	Pad     uint32
}

// Task is struct kn_task.
type Task struct {
	_       structs.HostLayout
	PID     uint32
	TGID    uint32
	StartNS uint64
	UID     uint32
	Pad     uint32
	Comm    [16]byte
}

// Chain is struct kn_chain: a cgroup and its ancestors, leaf first.
type Chain struct {
	_         structs.HostLayout
	Depth     uint32
	Truncated uint32
	ID        [chainLevels]uint64
	Name      [chainLevels][chainName]byte
}

// Level returns the id and name of the i-th level; the name aliases c.
func (c *Chain) Level(i int) (id uint64, name []byte) {
	return c.ID[i], CString(c.Name[i][:])
}

// Levels returns the number of valid levels, at most the array's size.
func (c *Chain) Levels() int { return int(min(c.Depth, chainLevels)) }

// Canary is struct kn_canary.
type Canary struct {
	_       structs.HostLayout
	H       Header
	Nonce   uint64
	Jiffies uint64
}

// CString returns b up to its first NUL, aliasing b.
func CString(b []byte) []byte {
	text, _, _ := bytes.Cut(b, []byte{0})
	return text
}

// Errors of [ParseHeader].
var (
	// ErrMalformed: the record is shorter than its header says, or than a header.
	ErrMalformed = errors.New("malformed record")
	// ErrForeignWire: the record was written by a program of another wire version.
	ErrForeignWire = errors.New("record of another wire version")
)

// ParseHeader checks the header of a raw record and returns a view of it.
func ParseHeader(raw []byte) (*Header, error) {
	h, err := View[Header](raw)
	if err != nil {
		return nil, err
	}
	if h.Version != WireVersion {
		return nil, fmt.Errorf("%w: %d, want %d", ErrForeignWire, h.Version, WireVersion)
	}
	if int(h.Size) != len(raw) {
		return nil, fmt.Errorf("%w: header says %d bytes, got %d", ErrMalformed, h.Size, len(raw))
	}
	return h, nil
}

// Record is a Go mirror of one wire struct.
type Record interface {
	Header | Canary | OOMKill | HungTask | HungTaskResumed | SockFail | DiskIO | FSError | HWError
}

// View returns raw as a record, aliased, or [ErrMalformed] if raw is too short or not aligned.
func View[R Record](raw []byte) (*R, error) {
	var zero R
	if len(raw) < int(unsafe.Sizeof(zero)) {
		return nil, fmt.Errorf("%w: %d bytes, want %d", ErrMalformed, len(raw), unsafe.Sizeof(zero))
	}
	p := unsafe.Pointer(unsafe.SliceData(raw))
	if uintptr(p)%unsafe.Alignof(zero) != 0 {
		return nil, fmt.Errorf("%w: not aligned", ErrMalformed)
	}
	return (*R)(p), nil
}
