package outbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/kernosis/kernosis/collector/statefile"
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
	if err := (statefile.File{Path: f.Path, Durable: true, Written: f.Written}).Replace(raw); err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}
