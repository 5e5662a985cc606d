package artifact

import (
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/diagnose/operation"
)

// file is an artifact that is being written.
type file struct {
	r            *Run
	name, folder string
	at           place

	f    *os.File
	held int64         // bytes reserved in the store; guarded by the store's disk lock
	done chan struct{} // closed under the disk lock when the file is closed or discarded

	mu        sync.Mutex // locked before the store's locks
	sum       hash.Hash
	size      int64
	truncated bool
}

// Write writes as much of b as fits, and fails with [operation.ErrArtifactBudget] if not all of it
// does.
func (f *file) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed() {
		return 0, fmt.Errorf("write artifact %s: %w", f.name, fs.ErrClosed)
	}
	want := min(int64(len(b)), f.r.s.cfg.MaxSize-f.size)
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
		return n, fmt.Errorf("write artifact %s: %w", f.name, noRoom(fmt.Sprintf("at most %d bytes each", f.r.s.cfg.MaxSize)))
	}
	return n, fmt.Errorf("write artifact %s: %w", f.name, noRoom(fmt.Sprintf("at most %d bytes in all", f.r.s.cfg.Budget)))
}

// write writes to the disk. If the disk is full, it evicts artifacts of other diagnoses.
func (f *file) write(b []byte) (n int, err error) {
	for {
		m, err := f.f.Write(b[n:])
		n += m
		if !isFull(err) || f.r.s.apart && f.folder != "" || !f.r.s.evictOne() {
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
	err := errors.Join(f.f.Sync(), f.f.Close())
	s.disk.Lock()
	defer s.disk.Unlock()
	if f.closed() {
		return nil // discarded in the meantime
	}
	close(f.done)
	if err == nil {
		err = f.at.root.Rename(f.at.file(partialName(f.name)), f.at.file(f.name))
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

func (f *file) closed() bool {
	select {
	case <-f.done:
		return true
	default:
		return false
	}
}

// discard aborts writing. The disk lock is held. A concurrent Write fails, and releases what it has
// reserved.
func (f *file) discard() {
	close(f.done)
	_ = f.f.Close()
	f.drop()
}

// drop removes the incomplete file. The disk lock is held.
func (f *file) drop() {
	s := f.r.s
	delete(f.r.files, f.name)
	if err := f.at.root.Remove(f.at.file(partialName(f.name))); err != nil {
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

func (s *Store) evictOne() bool {
	s.disk.Lock()
	defer s.disk.Unlock()
	return s.evict()
}

// isFull reports whether the disk or a quota is full.
func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
