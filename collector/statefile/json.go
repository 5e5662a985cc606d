package statefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// NewerError is about something in a form of a newer version of Kernosis.
type NewerError struct {
	Form, Known int
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("it is of a newer version of Kernosis: its form is %d, known is %d", e.Form, e.Known)
}

// Decode reads a JSON object into v. Its form is the number in its field version, or else
// the first one. Fields that v does not have are left aside: within a form, versions of
// Kernosis may add some. The error is a [*NewerError] where the form is beyond the known one.
func Decode(raw []byte, known int, v any) error {
	var of struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(raw, &of); err != nil {
		return err
	}
	if of.Version > known {
		return &NewerError{Form: of.Version, Known: known}
	}
	return json.Unmarshal(raw, v)
}

// Load reads the file into v, as [Decode] does, and reports whether there was one. One that
// can't be decoded is set aside, so that what is saved next does not replace it.
func (f File) Load(known int, v any) (found bool, err error) {
	raw, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err // it has the path
	}
	if err := Decode(raw, known, v); err != nil {
		return true, errors.Join(fmt.Errorf("%s: %w", f.Path, err), f.SetAside())
	}
	return true, nil
}

// SetAside gives a file that can't be used a name for a person, or for the version that
// wrote it: ".unread" behind its own. One of an earlier time is written over.
func (f File) SetAside() error { return os.Rename(f.Path, f.Path+".unread") }

// Save replaces the file by v as JSON, as [File.Replace] does.
func (f File) Save(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if f.Max > 0 && len(raw) > f.Max {
		return fmt.Errorf("%s: %d bytes, at most %d are kept", f.Path, len(raw), f.Max)
	}
	return f.Replace(raw)
}
