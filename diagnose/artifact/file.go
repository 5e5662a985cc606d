package artifact

import (
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/bounded"
	"github.com/kernosis/kernosis/diagnose/operation"
)

// file is an artifact that is being written.
type file struct {
	r            *Run
	name, folder string
	at           place

	f    *os.File      // nil: not created yet
	held int64         // bytes reserved in the store; guarded by the store's disk lock
	done chan struct{} // closed under the disk lock when the file is closed or discarded

	mu        sync.Mutex // locked before the store's locks
	sum       hash.Hash
	size      int64
	truncated bool
	late      error // a Write was abandoned: what the file has is not known
}

// open creates the file. On a full disk it evicts artifacts of other diagnoses.
func (f *file) open() (*os.File, error) {
	at, partial := f.at, f.at.file(partialName(f.name))
	for {
		file, err := reach(at, storageWithin, func(step func() error) (*os.File, error) {
			if err := at.root.Mkdir(at.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return nil, err
			}
			file, err := at.root.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL|noFollow, 0o600)
			if err != nil {
				return nil, err
			}
			if err := step(); err != nil {
				return nil, errors.Join(err, file.Close(), at.root.Remove(partial))
			}
			return file, nil
		})
		if !isFull(err) {
			return file, err
		}
		if !f.makeRoom() {
			return nil, fmt.Errorf("%w: %w", operation.ErrArtifactBudget, err)
		}
	}
}

// makeRoom evicts artifacts from the file's full disk. It returns false if there are none.
func (f *file) makeRoom() bool {
	s := f.r.s
	if f.folder != "" && s.storage.isApart() {
		return false
	}
	s.disk.Lock()
	defer s.disk.Unlock()
	return s.evict()
}

// Write writes as much of b as fits, and fails with [operation.ErrArtifactBudget] if not all of it
// does.
func (f *file) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed() {
		return 0, fmt.Errorf("write artifact %s: %w", f.name, fs.ErrClosed)
	}
	if f.late != nil {
		return 0, fmt.Errorf("write artifact %s: %w", f.name, f.late)
	}
	want := min(int64(len(b)), f.r.s.maxSize-f.size)
	granted := f.r.s.reserve(f, want)
	n, err := f.write(b[:granted])
	_, _ = f.sum.Write(b[:n]) // it never fails
	f.size += int64(n)
	f.r.s.release(f, granted-int64(n))
	switch {
	case err != nil && !isFull(err):
		return n, fmt.Errorf("write artifact %s: %w", f.name, err)
	case err == nil && n == len(b):
		return n, nil
	}
	if !f.truncated {
		f.truncated = true
		f.r.s.cutOff()
	}
	if err != nil {
		return n, fmt.Errorf("write artifact %s: %w: %w", f.name, operation.ErrArtifactBudget, err)
	}
	if want < int64(len(b)) {
		return n, fmt.Errorf("write artifact %s: %w", f.name, noRoom(fmt.Sprintf("at most %d bytes each", f.r.s.maxSize)))
	}
	return n, fmt.Errorf("write artifact %s: %w", f.name, noRoom(fmt.Sprintf("at most %d bytes in all", f.r.s.cfg.Budget)))
}

// write writes to the disk. If the disk is full, it evicts artifacts of other diagnoses.
func (f *file) write(b []byte) (n int, err error) {
	if f.at.storage != nil {
		b = slices.Clone(b) // an abandoned write owns it
	}
	for {
		rest := b[n:]
		m, err := reach(f.at, storageWithin, func(func() error) (int, error) { return f.f.Write(rest) })
		n += m
		if errors.Is(err, bounded.ErrLate) {
			f.late = err
		}
		if !isFull(err) || !f.makeRoom() {
			return n, err
		}
	}
}

// Close completes the artifact and adds it to the store. It may be called more than once.
func (f *file) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed() {
		return nil
	}
	s := f.r.s
	err := f.late
	if err == nil {
		err = f.flush()
	}
	s.disk.Lock()
	defer s.disk.Unlock()
	if f.closed() {
		return nil // discarded in the meantime
	}
	close(f.done)
	if err == nil && f.at.storage == nil {
		err = f.rename()
	}
	if err != nil {
		f.drop()
		return fmt.Errorf("close artifact %s: %w", f.name, err)
	}
	f.r.finish(f, Artifact{
		Name: f.name, Size: f.size, SHA256: hex.EncodeToString(f.sum.Sum(nil)), Time: time.Now().UTC().Truncate(time.Millisecond), Truncated: f.truncated, Folder: f.folder,
	})
	return nil
}

// flush closes the file. In the storage folder it also gives it its name, which must not be done
// under the disk lock.
func (f *file) flush() error {
	_, err := reach(f.at, flushWithin, func(step func() error) (struct{}, error) {
		err := errors.Join(f.f.Sync(), f.f.Close())
		if err != nil || f.at.storage == nil {
			return struct{}{}, err
		}
		if err := step(); err != nil {
			return struct{}{}, err
		}
		if f.closed() {
			return struct{}{}, fs.ErrClosed
		}
		return struct{}{}, f.rename()
	})
	return err
}

func (f *file) rename() error {
	return f.at.root.Rename(f.at.file(partialName(f.name)), f.at.file(f.name))
}

func (f *file) closed() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// discard aborts writing. The disk lock is held. A concurrent Write fails, and releases what it has
// reserved. A concurrent Create fails, and removes what it has created.
func (f *file) discard() {
	close(f.done)
	if f.f != nil {
		f.drop()
	}
}

// drop closes and removes the incomplete file. The disk lock is held.
func (f *file) drop() {
	s := f.r.s
	delete(f.r.files, f.name)
	err := f.at.remove(f.r.id, func() error {
		_ = f.f.Close() // it may be closed already
		return f.at.root.Remove(f.at.file(partialName(f.name)))
	})
	if err != nil {
		s.log.Warn("can't remove an incomplete artifact", "diagnosis", f.r.id, "artifact", f.name, "error", err)
	}
	s.change(func() { s.stats.Bytes -= f.held })
	f.held = 0
}

func (s *Store) cutOff() {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.change(func() { s.stats.Truncated++ })
}

// isFull reports whether the disk or a quota is full.
func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
