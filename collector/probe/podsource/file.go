package podsource

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/prometheus/client_golang/prometheus"
)

// FileConfig says where the file is and what to do with its pods.
type FileConfig struct {
	Path string
	Sink Sink
	Log  *slog.Logger
}

const (
	// settled is for how long nothing has changed before the file is read: writers take
	// several steps, and half a file may be a good one. Changes that go on are not
	// waited for.
	settled     = 200 * time.Millisecond
	mostSettled = 2 * time.Second
	// retryWatch is how long after a failure the folder is tried again.
	retryWatch = 30 * time.Second
)

// File follows a file of pods.
type File struct {
	*figures
	cfg   FileConfig
	inUse []byte // digest of what was read last
}

var _ prometheus.Collector = (*File)(nil)

// NewFile returns a File that has read nothing yet.
func NewFile(cfg FileConfig) (*File, error) {
	if cfg.Path == "" || cfg.Sink == nil {
		return nil, errors.New("file of pods: path and sink are needed")
	}
	return &File{figures: newFigures("file", cfg.Path, cfg.Log), cfg: cfg}, nil
}

// Run reads the file, and again when it changes, until ctx ends. Failures are counted and
// logged; the known pods stay, even if the file is gone.
func (f *File) Run(ctx context.Context) error {
	for {
		if err := f.follow(ctx); err != nil && ctx.Err() == nil {
			f.failure(err)
		}
		retry := time.NewTimer(retryWatch)
		select {
		case <-ctx.Done():
			retry.Stop()
			return nil
		case <-retry.C:
		}
	}
}

// follow reads the file until ctx ends or its folder can't be watched.
func (f *File) follow(ctx context.Context) error {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	defer func() { _ = w.Close() }()
	// The folder, because files are replaced by others, and by links to others.
	dir := filepath.Dir(f.cfg.Path)
	watchErr := w.Add(dir)
	err = f.look()
	if watchErr != nil {
		return errors.Join(fmt.Errorf("watch pods: %s: %w", dir, watchErr), err)
	}
	for {
		if err != nil {
			f.failure(err)
		}
		if err := f.change(ctx, w, dir); err != nil || ctx.Err() != nil {
			return err
		}
		err = f.look()
	}
}

// change waits for a change, and until it has settled.
func (f *File) change(ctx context.Context, w *fsnotify.Watcher, dir string) error {
	var quiet, latest <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case ev, ok := <-w.Events:
			if !ok {
				return nil
			}
			if ev.Has(fsnotify.Remove|fsnotify.Rename) && filepath.Clean(ev.Name) == filepath.Clean(dir) {
				return fmt.Errorf("watch pods: %s is gone", dir)
			}
		case _, ok := <-w.Errors:
			if !ok {
				return nil
			}
			// An overflow of the queue: some change was not reported.
		case <-quiet:
			return nil
		case <-latest:
			return nil
		}
		quiet = time.After(settled)
		if latest == nil {
			latest = time.After(mostSettled)
		}
	}
}

// look reads the file, and hands its pods over if it has changed.
func (f *File) look() error {
	at := time.Now()
	data, err := readFile(f.cfg.Path, maxFile)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	if bytes.Equal(sum[:], f.inUse) && f.Failure() == nil {
		return nil
	}
	pods, err := Parse(f.cfg.Path, data)
	if err != nil {
		return err
	}
	f.inUse = sum[:]
	f.read(len(pods), nil)
	f.cfg.Sink(pods, at)
	return nil
}
