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
	// foreign is an unsupported compression: the contents are lost unless they were read before.
	foreign
)

// unpackedName returns the name of a file before it was compressed.
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
	// maxUnpacked bounds how much is read from a compressed file, which may be crafted to
	// decompress to a thousand times its size. The ratio is not bounded: deflate's limit is 1032, and
	// a repeated line can come near it.
	maxUnpacked = 4 << 30
	// skipStep is how much is skipped at a time, about 10 ms.
	skipStep = 4 << 20
	// retryEvery is how often a file that is still being compressed is read again from its start.
	retryEvery = time.Second
)

// errDamaged is returned for a compressed file that can't be read any further.
var errDamaged = errors.New("the compressed file can't be read")

// packed is a compressed file, decompressed as it is read, in about 80 KiB of memory.
type packed struct {
	f      *os.File
	z      *gzip.Reader // nil: start over
	at     int64        // offset of the next byte that z returns
	damage error        // not nil: no more can be read
	limit  int64        // of how much is read

	tried time.Time // when its end was missing; zero if it was not
	size  int64     // of the file at that time
	since time.Time // since when it has this size
}

func newPacked(f *os.File, p packing) *packed {
	k := &packed{f: f, limit: maxUnpacked}
	if p == foreign {
		k.damage = errDamaged
	}
	return k
}

// readAt is ReadAt on the decompressed content. It may read less: 0 without an error while it skips to
// off. It returns io.ErrUnexpectedEOF for a file whose end is missing, and errDamaged.
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
			err = io.ErrUnexpectedEOF // the file is empty
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
		return n, nil // the next read returns the error again
	}
	if errors.Is(err, io.EOF) {
		return 0, io.EOF
	}
	return 0, p.failed(err)
}

// failed records what err means for the next read, and returns it.
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

// given reports whether a file without an end has had this size for long: its writer has given up.
func (p *packed) given(size int64, long time.Duration) bool {
	if p.since.IsZero() || p.size != size {
		p.size, p.since = size, time.Now()
	}
	return time.Since(p.since) >= long
}

// packedDone reports whether no more can be read from the current file, which is compressed: it is
// at its end, it is damaged, or its writer has given up.
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

// head reads the first decompressed bytes, at most headSize; after an error, those it got.
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

// unpackedSize guesses the decompressed size, modulo 2^32, from the file's last bytes.
func (p *packed) unpackedSize(size int64) uint32 {
	var b [4]byte
	if _, err := p.f.ReadAt(b[:], size-int64(len(b))); err != nil {
		return 0
	}
	return binary.LittleEndian.Uint32(b[:])
}
