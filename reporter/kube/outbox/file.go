package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// File keeps one value as JSON. A kill or a power failure while it is written
// leaves the old value or the new one.
type File struct {
	Path string
	// Max bounds the value, in bytes; 0: nothing does. What is larger is not saved.
	Max int
	// Written is called when the new value is on the disk, but not yet in the
	// place of the old one; nil: nothing is. For tests.
	Written func()
}

// Load reads the value into v and reports whether there is one.
func (f File) Load(v any) (bool, error) {
	raw, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("load state: %w", err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return true, fmt.Errorf("load state: %s: %w", f.Path, err)
	}
	return true, nil
}

// Save replaces the value.
func (f File) Save(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	if f.Max > 0 && len(raw) > f.Max {
		return fmt.Errorf("save state: %s: %d bytes, at most %d are kept", f.Path, len(raw), f.Max)
	}
	tmp := f.Path + ".new"
	if err := writeSynced(tmp, raw); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	if f.Written != nil {
		f.Written()
	}
	if err := os.Rename(tmp, f.Path); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	if err := syncFolder(filepath.Dir(f.Path)); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}

func writeSynced(path string, raw []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(raw)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncFolder makes a rename in it survive a power failure.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
