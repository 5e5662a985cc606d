// Package statefile keeps what a program remembers of itself in files. They are replaced as
// a whole: what is read back is as it was before or after a write, however the program ended
// in it. Older and newer versions of the program read them, too: see [Decode].
package statefile

import (
	"errors"
	"os"
	"path/filepath"
)

// File is a file that one process writes. Beside it a file of its name and ".new" comes and
// goes; one that a kill has left is written over.
type File struct {
	Path string
	// Durable has what was written outlast a power failure too: both file and folder are
	// synced, some milliseconds on a disk.
	Durable bool
	// Max bounds what Save writes, in bytes; 0: nothing does.
	Max int
	// Written is called when the new content is beside the old one; nil: nothing is. Tests
	// end the program there.
	Written func()
}

// Replace writes the content, mode 0600. After an error the old content is there, but for
// one of the folder's sync, after which it is the new one.
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
		return errors.Join(err, os.Remove(path)) // a disk that is full needs the room
	}
	return nil
}

// syncFolder has changes of names in a folder outlast a power failure.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
