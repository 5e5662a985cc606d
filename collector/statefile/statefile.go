// Package statefile stores a program's state in files. They are replaced as a whole: after a crash
// during a write, a file has either its old or its new content. Older and newer versions of the
// program can read them, too: see [Decode].
package statefile

import (
	"errors"
	"os"
	"path/filepath"
)

// File is a file that one process writes. During a write there is a second file with ".new"
// appended to its name; one that was left by a kill is overwritten.
type File struct {
	Path string
	// Durable makes writes survive a power failure: both file and folder are synced, which takes
	// some milliseconds on a disk.
	Durable bool
	// Max bounds what Save writes, in bytes; 0: no limit.
	Max int
	// Written is called when the new content is beside the old one; may be nil. Tests kill the
	// program there.
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
	return syncFolder(filepath.Dir(f.Path))
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

// syncFolder makes renames in a folder survive a power failure.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
