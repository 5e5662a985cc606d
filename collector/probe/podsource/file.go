package podsource

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/kernosis/kernosis/collector/document"
)

// FileConfig configures a File.
type FileConfig struct {
	Path string
	Sink Sink
	Log  *slog.Logger
}

// File watches a file of pods.
type File struct {
	*figures
	cfg   FileConfig
	inUse []byte // digest of the content in use
}

// NewFile returns a File that has read nothing yet.
func NewFile(cfg FileConfig) (*File, error) {
	if cfg.Path == "" || cfg.Sink == nil {
		return nil, errors.New("file of pods: path and sink are needed")
	}
	return &File{figures: newFigures("file", cfg.Path, cfg.Log), cfg: cfg}, nil
}

// Run reads the file at first and whenever it changes, until ctx ends. It counts and logs
// failures; the known pods stay, even if the file is removed.
func (f *File) Run(ctx context.Context) error {
	// Watch the folder, because files are replaced by others or by links to others.
	document.Watch(ctx, filepath.Dir(f.cfg.Path), f.log, func() {
		if err := f.look(); err != nil {
			f.failure(err)
		}
	})
	return nil
}

// look reads the file and passes its pods to the sink if it has changed.
func (f *File) look() error {
	at := time.Now()
	data, err := document.ReadFile(f.cfg.Path, maxFile)
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
