package vmtest

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
)

// bcacheDataStart is the sector of a backing device at which a bcache volume begins.
const bcacheDataStart = 16

// newBcache creates a bcache volume: a cache in front of a backing device. Both are removed at the end
// of the test.
func newBcache(t *testing.T, cache, backing blockDevice) blockDevice {
	t.Helper()
	module(t, "CONFIG_BCACHE", "bcache")
	set := uuid.New()
	writeBcacheSuper(t, cache.path(), 0, set)
	writeBcacheSuper(t, backing.path(), 1, set)
	for _, d := range []blockDevice{cache, backing} {
		writeAttribute(t, "/sys/fs/bcache/register", d.path())
	}
	folder := "/sys/fs/bcache/" + set.String()
	volume := findDevice(t, "bcache volume", func(dir string) bool {
		below, err := os.Readlink(filepath.Join(dir, "bcache"))
		return err == nil && filepath.Base(filepath.Dir(below)) == backing.name
	})
	t.Cleanup(func() {
		writeAttribute(t, folder+"/stop", "1") // also of its volumes
		eventually(t, "the end of "+volume.name, 30*time.Second, func() bool {
			return absent(folder) && absent("/sys/block/"+volume.name)
		})
	})
	if state := attribute("/sys/block/" + volume.name + "/bcache/state"); state != "clean" {
		t.Fatalf("%s is without its cache: %s", volume.name, state)
	}
	return volume
}

func absent(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}

// writeBcacheSuper writes a superblock of bcache (struct cache_sb_disk of the kernel); version is 0
// for a cache and 1 for a backing device.
func writeBcacheSuper(t *testing.T, path string, version uint64, set uuid.UUID) {
	t.Helper()
	const (
		sector      = 8
		bucket      = 128  // sectors
		buckets     = 8192 // with far fewer, the cache waits for free buckets for ever
		checksumEnd = 208  // of a superblock without journal buckets
	)
	own, le := uuid.New(), binary.LittleEndian
	super := make([]byte, blockSize)
	le.PutUint64(super[8:], sector)
	le.PutUint64(super[16:], version)
	copy(super[24:], "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81")
	copy(super[40:], own[:])
	copy(super[56:], set[:])
	if version == 0 {
		le.PutUint64(super[184:], buckets)
	}
	le.PutUint16(super[192:], 1) // sectors of a block
	le.PutUint16(super[194:], bucket)
	le.PutUint16(super[196:], 1) // one cache
	le.PutUint16(super[204:], 1) // the first bucket after the superblock
	le.PutUint64(super, bcacheChecksum(super[8:checksumEnd]))
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(super, sector*sectorSize); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

// bcacheChecksum is the kernel's crc64_be, inverted at both ends. hash/crc64 has only the reflected
// form.
func bcacheChecksum(b []byte) uint64 {
	const polynomial = 0x42f0e1eba9ea3693 // ECMA-182
	crc := ^uint64(0)
	for _, c := range b {
		crc ^= uint64(c) << 56
		for range 8 {
			carry := crc >> 63
			crc = crc<<1 ^ carry*polynomial
		}
	}
	return ^crc
}

// bcacheWrite is a disk with bad blocks below a bcache volume. bcache passes the volume's own bios on
// to the disk, so the kernel reports their errors for the disk alone, where they happened.
func (l *diskLab) bcacheWrite(t *testing.T) *diskFault {
	t.Helper()
	cache, backing := newNullDisk(t, "bcache-cache", 512, "memory_backed=1"), newNullDisk(t, "bcache", 16, "memory_backed=1")
	volume := newBcache(t, cache.blockDevice, backing.blockDevice)
	const first, blocks = 8192, 2 * faults
	backing.spoil(t, bcacheDataStart+first, blocks*blockSize/sectorSize)
	var bad []uint64
	for i := range uint64(blocks) {
		bad = append(bad, first+i*blockSize/sectorSize)
	}
	f := deviceFault(volume, unix.O_DIRECT, "write", blockSize, 0, bad...)
	f.device, f.offset = backing.name, bcacheDataStart
	return f
}
