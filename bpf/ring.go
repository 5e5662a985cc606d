package bpf

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Ring reads a BPF ring buffer in place, and commits a record to the kernel only when asked to. So
// an agent that is killed while it handles a record finds it again after its restart; cilium/ebpf's
// reader advances before the caller has seen the record. See docs/adr/0002-ring-reader.md.
//
// A Ring must be used by one goroutine. A buffer must not have several Rings at the same time.
type Ring struct {
	fd       int
	consumer []byte // one page, shared with the kernel
	producer []byte // one page and the data
	data     []byte
	mask     uint64
	next     uint64 // position behind the record that Next returned
	wrapped  []byte // copy of the record that runs over the end of the data
}

// Bits of a record's length word (linux/bpf.h).
const (
	ringBusy      = 1 << 31
	ringDiscard   = 1 << 30
	ringHeaderLen = 8
)

// FD returns the descriptor, which becomes readable when there are records.
func (r *Ring) FD() int { return r.fd }

// OpenRing maps a ring buffer. The map must stay open as long as the Ring.
func OpenRing(m *ebpf.Map) (*Ring, error) {
	if m.Type() != ebpf.RingBuf {
		return nil, fmt.Errorf("open ring: map is a %s", m.Type())
	}
	size, page := int(m.MaxEntries()), os.Getpagesize()
	r := &Ring{fd: m.FD(), mask: uint64(size) - 1}
	var err error
	r.consumer, err = unix.Mmap(r.fd, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("open ring: map consumer page: %w", err)
	}
	// The kernel would map the data twice in a row, so that each record is contiguous. But this
	// counts twice as memory of this process, and only one record in hundreds needs it.
	r.producer, err = unix.Mmap(r.fd, int64(page), page+size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open ring: map data: %w", err), r.Close())
	}
	r.data = r.producer[page:]
	r.next = r.consumed().Load()
	return r, nil
}

func (r *Ring) consumed() *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&r.consumer[0])) }
func (r *Ring) produced() *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&r.producer[0])) }

// Next returns the next record, valid until [Ring.Commit], or nil when there is none yet.
func (r *Ring) Next() []byte {
	for r.next < r.produced().Load() {
		off := r.next & r.mask
		// The kernel clears the busy bit, with release order, after the program's last write.
		word := (*atomic.Uint32)(unsafe.Pointer(&r.data[off])).Load()
		if word&ringBusy != 0 {
			return nil
		}
		n := uint64(word &^ (ringBusy | ringDiscard))
		r.next += (ringHeaderLen + n + 7) &^ 7
		if word&ringDiscard == 0 {
			return r.record(off+ringHeaderLen, n)
		}
	}
	return nil
}

// record returns n bytes from an offset. The offset may equal the end of the data, when the header
// filled the last bytes: a header is never split, since both sizes are multiples of its length.
func (r *Ring) record(off, n uint64) []byte {
	off &= r.mask
	if end := off + n; end <= uint64(len(r.data)) {
		return r.data[off:end:end]
	}
	// One buffer is enough: no other record can wrap around before this one is committed.
	r.wrapped = append(append(r.wrapped[:0], r.data[off:]...), r.data[:n-uint64(len(r.data))+off]...)
	return r.wrapped
}

// Commit releases everything that Next returned to the kernel.
func (r *Ring) Commit() {
	if r.consumed().Load() != r.next {
		r.consumed().Store(r.next)
	}
}

// Pending returns how many bytes are unread.
func (r *Ring) Pending() uint64 { return r.produced().Load() - r.next }

// Close unmaps the buffer; records not committed stay in it. It may be called more than once.
func (r *Ring) Close() error {
	var errs []error
	for _, m := range []*[]byte{&r.consumer, &r.producer} {
		if *m != nil {
			errs = append(errs, unix.Munmap(*m))
			*m = nil
		}
	}
	return errors.Join(errs...)
}
