package file

import (
	"bufio"
	"compress/flate"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"
)

// packing is how a rotated file is compressed.
type packing int

const (
	plain packing = iota
	gzipped
	// foreign is a compression that is not read: what such a file holds is lost
	// unless it was read before.
	foreign
)

// unpackedName returns what a file was called before it was compressed.
func unpackedName(name string) (string, packing) {
	ext := filepath.Ext(name)
	switch ext {
	case ".gz":
		return name[:len(name)-len(ext)], gzipped
	case ".bz2", ".lz4", ".lzma", ".lzo", ".xz", ".zst", ".Z", ".zip":
		return name[:len(name)-len(ext)], foreign
	default:
		return name, plain
	}
}

const (
	// maxUnpacked bounds what is read of a compressed file, which may be made to
	// be a thousand times as long when it is unpacked. There is no bound of the
	// ratio: deflate has its own of 1032, and a line that is logged over and over
	// comes near.
	maxUnpacked = 4 << 30
	// skipStep is how much is passed by at a time, some 10 ms.
	skipStep = 4 << 20
	// retryEvery is how often a file that is being compressed is read anew, from
	// its start.
	retryEvery = time.Second
)

// errDamaged is returned for a compressed file of which no more can be read.
var errDamaged = errors.New("the compressed file can't be read")

// packed is a compressed file, unpacked as it is read. Its memory is of fixed
// size, some 80 KiB.
type packed struct {
	f      *os.File
	z      *gzip.Reader // nil: to be read from the start
	at     int64        // of the next byte that z returns
	damage error        // no more can be read
	limit  int64        // of what is read

	tried time.Time // when its end was missing; zero: it was not
	size  int64     // of the file then
	since time.Time // that it has this size
}

func newPacked(f *os.File, p packing) *packed {
	k := &packed{f: f, limit: maxUnpacked}
	if p == foreign {
		k.damage = errDamaged
	}
	return k
}

// readAt is ReadAt of what is unpacked, but reads some of it only, and returns 0
// without an error where it is still on the way to off. It returns
// io.ErrUnexpectedEOF for a file whose end is missing, and errDamaged.
func (p *packed) readAt(b []byte, off int64) (int, error) {
	switch {
	case p.damage != nil:
		return 0, p.damage
	case !p.tried.IsZero() && time.Since(p.tried) < retryEvery:
		return 0, io.ErrUnexpectedEOF
	case off >= p.limit:
		return 0, p.failed(fmt.Errorf("%w: it holds more than %d bytes", errDamaged, p.limit))
	}
	if p.z == nil || off < p.at {
		z, err := gzip.NewReader(bufio.NewReaderSize(io.NewSectionReader(p.f, 0, math.MaxInt64), chunk/2))
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF // there is nothing at all
		}
		if err != nil {
			return 0, p.failed(err)
		}
		p.z, p.at = z, 0
	}
	if p.at < off {
		n, err := io.CopyN(io.Discard, p.z, min(off-p.at, skipStep))
		p.at += n
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: it holds %d bytes, of which %d were read", errDamaged, p.at, off)
		}
		return 0, p.failed(err)
	}
	n, err := p.z.Read(b[:min(int64(len(b)), p.limit-off)])
	p.at += int64(n)
	if n > 0 {
		return n, nil // the error comes again
	}
	if errors.Is(err, io.EOF) {
		return 0, io.EOF
	}
	return 0, p.failed(err)
}

// failed takes down what err means for the next reading, and returns it.
func (p *packed) failed(err error) error {
	if err == nil {
		return nil
	}
	p.z = nil
	var corrupt flate.CorruptInputError
	switch {
	case errors.Is(err, errDamaged):
		p.damage = err
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.As(err, &corrupt):
		p.damage = fmt.Errorf("%w: %w", errDamaged, err)
		return p.damage
	case errors.Is(err, io.ErrUnexpectedEOF):
		p.tried = time.Now()
	}
	return err
}

// given reports whether a file whose end is missing, and which has this size, has
// not grown for long: nobody is writing it any more.
func (p *packed) given(size int64, long time.Duration) bool {
	if p.since.IsZero() || p.size != size {
		p.size, p.since = size, time.Now()
	}
	return time.Since(p.since) >= long
}

// packedDone reports whether nothing more can be read of the current file, which
// is compressed: there is nothing more, it is damaged, or who was writing it has
// given up.
func (s *follower) packedDone() bool {
	p := s.cur.packed
	switch {
	case p == nil:
		return false
	case errors.Is(s.failed, io.ErrUnexpectedEOF):
		return p.given(s.cur.stat.size, s.r.goneFor)
	default:
		return s.failed == nil || errors.Is(s.failed, errDamaged)
	}
}

// head reads the first bytes of what is unpacked, at most headSize; less than
// there are with an error.
func (p *packed) head() ([]byte, error) {
	head := make([]byte, headSize)
	n := 0
	for n < len(head) {
		more, err := p.readAt(head[n:], int64(n))
		n += more
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return head[:n], err
		}
	}
	return head[:n], nil
}

// unpackedSize returns how much the file holds, modulo 2^32, according to its
// last bytes. That is a guess: they may be missing.
func (p *packed) unpackedSize(size int64) uint32 {
	var b [4]byte
	if _, err := p.f.ReadAt(b[:], size-int64(len(b))); err != nil {
		return 0
	}
	return binary.LittleEndian.Uint32(b[:])
}
