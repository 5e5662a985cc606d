// Package statefile stores a program's state in files. They are replaced as a whole: after a crash
// during a write, a file has either its old or its new content. Older and newer versions of the
// program can read them, too: see [Decode].
package statefile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// File is a file that one process writes. During a write there is a second file with ".new"
// appended to its name; one that was left by a kill is overwritten.
type File struct {
	Path string
	// Durable syncs file and folder, against a power failure; that takes milliseconds on a disk.
	Durable bool
	// Max bounds what Save writes, in bytes; 0: no limit.
	Max int
	// Written is called when new content is beside the old; may be nil. Tests kill the program there.
	Written func()
}

// Replace writes the content, with mode 0600. After an error the file has its old content, unless
// the folder's sync failed: then it has the new one.
func (f File) Replace(content []byte) error {
	beside := f.Path + ".new"
	if err := f.write(beside, content); err != nil {
		return err
	}
	if f.Written != nil {
		f.Written()
	}
	if err := os.Rename(beside, f.Path); err != nil {
		return errors.Join(err, os.Remove(beside))
	}
	if !f.Durable {
		return nil
	}
	folder, err := os.Open(filepath.Dir(f.Path)) // syncing it makes the rename survive a power failure
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

func (f File) write(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil && f.Durable {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(path)) // a full disk needs the space
	}
	return nil
}

// NewerError is returned for content in a format of a newer version of Kernosis.
type NewerError struct {
	Form, Known int
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("it is from a newer version of Kernosis: format %d, known up to %d", e.Form, e.Known)
}

// Decode decodes a JSON object into v. The object's field version has the number of its format;
// without that field it has the first format. Decode ignores fields that v does not have, because
// newer versions of Kernosis may add fields within a format. The error is a [*NewerError] if the
// format is newer than known.
func Decode(raw []byte, known int, v any) error {
	var of struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(raw, &of); err != nil {
		return err
	}
	if raw = bytes.TrimSpace(raw); raw[0] != '{' { // null, which encoding/json decodes into anything
		return fmt.Errorf("%.20s is not an object", raw)
	}
	if of.Version > known {
		return &NewerError{Form: of.Version, Known: known}
	}
	return json.Unmarshal(raw, v)
}

// Load decodes the file into v, as [Decode] does, and reports whether there was one. A file that
// can't be decoded is set aside, so that the next Save does not overwrite it.
func (f File) Load(known int, v any) (found bool, err error) {
	raw, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err // it contains the path
	}
	if err := Decode(raw, known, v); err != nil {
		return true, errors.Join(fmt.Errorf("%s: %w", f.Path, err), f.SetAside())
	}
	return true, nil
}

// SetAside renames a file that can't be used, so that a person, or the version that wrote it, can
// read it: it appends ".unread" to the name. It overwrites an earlier one.
func (f File) SetAside() error { return os.Rename(f.Path, f.Path+".unread") }

// Save replaces the file by v as JSON, as [File.Replace] does.
func (f File) Save(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if f.Max > 0 && len(raw) > f.Max {
		return fmt.Errorf("%s: %d bytes, at most %d are allowed", f.Path, len(raw), f.Max)
	}
	return f.Replace(raw)
}
