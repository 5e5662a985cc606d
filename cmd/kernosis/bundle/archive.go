// Package bundle writes a support archive: files of bounded size with secrets redacted, and a
// MANIFEST that lists them and what could not be collected.
package bundle

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// Bounds of a file and of all files, in bytes, before compression.
const (
	MaxFile  = 8 << 20
	maxTotal = 64 << 20
)

// ManifestName is the name of the file that lists the others. It is the last file.
const ManifestName = "MANIFEST"

// Archive is an archive that is being written.
type Archive struct {
	tar   *tar.Writer
	gzip  *gzip.Writer
	dir   string // the folder of all files in the archive
	now   time.Time
	head  string
	left  int
	files output.Rows
	lacks output.Rows
	err   error // the first write error
}

// New begins an archive whose files are in the folder dir. The MANIFEST begins with head.
func New(w io.Writer, dir, head string, now time.Time) *Archive {
	z := gzip.NewWriter(w)
	a := &Archive{tar: tar.NewWriter(z), gzip: z, dir: dir, now: now, head: head, left: maxTotal}
	a.files.Add("FILE", "BYTES", "WHAT")
	return a
}

// Add adds a file, with redacted secrets. Files named .json or .jsonl are JSON, with one value or one
// value per line; others are text. Of a text that is too long only the end is kept, which is the
// latest part of a log.
func (a *Archive) Add(name, what, text string) {
	if !strings.HasPrefix(filepath.Ext(name), ".json") {
		if len(text) > MaxFile { // cut first, so that only what is kept is redacted
			text, what = tail(text, MaxFile), what+cut
		}
		a.add(name, what, display.SafeLines(hostfs.RedactText(strings.ToValidUTF8(text, "\ufffd"))))
		return
	}
	clean, skipped, err := redactJSON([]byte(text))
	if err != nil {
		a.Lack(name, err)
		return
	}
	if skipped > 0 {
		what += fmt.Sprintf("; without %s that could not be read", display.Count(skipped, "line"))
	}
	a.add(name, what, string(clean))
}

// cut is the note on a file whose beginning is missing.
const cut = "; only the end: the file is too long"

// Lack records that a file is missing, and why.
func (a *Archive) Lack(name string, why error) {
	text := strings.ReplaceAll(strings.TrimSpace(hostfs.RedactText(why.Error())), "\n", "; ")
	a.lacks.Add(name, display.Safe(text, 1000))
}

func (a *Archive) add(name, what, text string) {
	limit := min(MaxFile, a.left)
	if len(text) > limit {
		if limit < 1024 {
			a.Lack(name, errors.New("the archive is full"))
			return
		}
		what += cut
		text = tail(text, limit)
	}
	a.files.Add(name, strconv.Itoa(len(text)), what)
	a.left -= len(text)
	a.write(name, text)
}

// tail returns the last limit bytes of a text, from the beginning of a line if there is one.
func tail(text string, limit int) string {
	text = text[len(text)-limit:]
	if _, after, ok := strings.Cut(text, "\n"); ok {
		return after
	}
	return strings.ToValidUTF8(text, "")
}

func (a *Archive) write(name, text string) {
	if a.err == nil {
		a.err = a.tar.WriteHeader(&tar.Header{Name: a.dir + "/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: a.now, Format: tar.FormatPAX})
	}
	if a.err == nil {
		_, a.err = io.WriteString(a.tar, text)
	}
}

// Close adds the MANIFEST and ends the archive. It returns the first write error.
func (a *Archive) Close() error {
	var b strings.Builder
	b.WriteString(a.head + "\n")
	b.WriteString(a.files.String())
	if a.lacks.Len() > 0 {
		b.WriteString("\nNot collected:\n" + a.lacks.String())
	}
	a.write(ManifestName, b.String())
	if err := cmp.Or(a.err, a.tar.Close(), a.gzip.Close()); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return nil
}

// Files returns the number of files in the archive.
func (a *Archive) Files() int { return a.files.Len() - 1 }

// Lacks returns the number of missing files.
func (a *Archive) Lacks() int { return a.lacks.Len() }
