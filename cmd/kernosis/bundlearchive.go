package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/kernosis/kernosis/cmd/kernosis/output"
	"github.com/kernosis/kernosis/collector/display"
	"github.com/kernosis/kernosis/collector/hostfs"
)

// Bounds of a file of the archive and of all files, in bytes, before compression.
const (
	maxBundled = 8 << 20
	maxBundle  = 64 << 20
)

// manifestName is the name of the file that lists the others. It is the last file.
const manifestName = "MANIFEST"

// archive is a support archive that is being written: files of bounded size with secrets redacted, and
// a MANIFEST that lists them and what could not be collected.
type archive struct {
	tar   *tar.Writer
	gzip  *gzip.Writer
	dir   string // the folder of all files in the archive
	now   time.Time
	head  string
	left  int
	files output.Rows // with a line of headings
	lacks output.Rows
	err   error // the first write error
}

// newArchive begins an archive whose files are in the folder dir. The MANIFEST begins with head.
func newArchive(w io.Writer, dir, head string, now time.Time) *archive {
	z := gzip.NewWriter(w)
	a := &archive{tar: tar.NewWriter(z), gzip: z, dir: dir, now: now, head: head, left: maxBundle}
	a.files.Add("FILE", "BYTES", "WHAT")
	return a
}

// add adds a file, with redacted secrets. Files named .json or .jsonl are JSON, with one value or one
// value per line; others are text. Of a text that is too long only the end is kept, which is the
// latest part of a log.
func (a *archive) add(name, what, text string) {
	if !strings.HasPrefix(filepath.Ext(name), ".json") {
		if len(text) > maxBundled { // cut first, so that only what is kept is redacted
			text, what = tail(text, maxBundled), what+onlyEnd
		}
		a.put(name, what, display.SafeLines(hostfs.RedactText(strings.ToValidUTF8(text, "\ufffd"))))
		return
	}
	clean, skipped, err := redactJSON([]byte(text))
	if err != nil {
		a.lack(name, err)
		return
	}
	if skipped > 0 {
		what += fmt.Sprintf("; without %s that could not be read", display.Count(skipped, "line"))
	}
	a.put(name, what, string(clean))
}

// onlyEnd is the note on a file whose beginning is missing.
const onlyEnd = "; only the end: the file is too long"

// lack records that a file is missing, and why.
func (a *archive) lack(name string, why error) {
	text := strings.ReplaceAll(strings.TrimSpace(hostfs.RedactText(why.Error())), "\n", "; ")
	a.lacks.Add(name, display.Safe(text, 1000))
}

func (a *archive) put(name, what, text string) {
	limit := min(maxBundled, a.left)
	if len(text) > limit {
		if limit < 1024 {
			a.lack(name, errors.New("the archive is full"))
			return
		}
		what += onlyEnd
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

func (a *archive) write(name, text string) {
	if a.err == nil {
		a.err = a.tar.WriteHeader(&tar.Header{Name: a.dir + "/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: a.now, Format: tar.FormatPAX})
	}
	if a.err == nil {
		_, a.err = io.WriteString(a.tar, text)
	}
}

// close adds the MANIFEST and ends the archive. It returns the first write error.
func (a *archive) close() error {
	var b strings.Builder
	b.WriteString(a.head + "\n")
	b.WriteString(a.files.String())
	if a.lacks.Len() > 0 {
		b.WriteString("\nNot collected:\n" + a.lacks.String())
	}
	a.write(manifestName, b.String())
	if err := cmp.Or(a.err, a.tar.Close(), a.gzip.Close()); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return nil
}

// redactJSON redacts secrets in a JSON value, or in several values, one per line. Lines that can't be
// parsed are left out and counted as skipped.
func redactJSON(text []byte) (clean []byte, skipped int, err error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	var whole any
	if decodeOne(text, &whole) == nil {
		if bytes.ContainsRune(bytes.TrimSpace(text), '\n') {
			e.SetIndent("", "  ") // else it may be the only line of a file of lines
		}
		err := e.Encode(redactValue(whole))
		return b.Bytes(), 0, err
	}
	for line := range bytes.Lines(text) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var v any
		if decodeOne(line, &v) != nil {
			skipped++
			continue
		}
		if err := e.Encode(redactValue(v)); err != nil {
			return nil, skipped, err
		}
	}
	if b.Len() == 0 && skipped > 0 {
		return nil, skipped, errors.New("not JSON")
	}
	return b.Bytes(), skipped, nil
}

// decodeOne reads the only value of a text. Numbers keep their text.
func decodeOne(text []byte, into *any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) { // More would stop at a bracket
		return errors.New("more than one value")
	}
	return nil
}

// redactValue redacts secrets in texts, and values whose name says that they are secret.
func redactValue(v any) any {
	switch v := v.(type) {
	case string:
		return hostfs.RedactText(v)
	case []any:
		redactArguments(v)
	case map[string]any:
		of, _ := v["name"].(string)
		for key, value := range v {
			name := nameOf(key, of)
			if text, ok := value.(string); ok {
				v[key] = hostfs.RedactValue(name, text)
				continue
			}
			if v[key] = redactValue(value); hostfs.RedactValue(name, "x") != "x" {
				v[key] = hostfs.Redacted
			}
		}
	}
	return v
}

// nameOf returns the name of a value in an object: its key, or the object's name if it has the form
// of a header: {name: X-Token, value: …}.
func nameOf(key, object string) string {
	if key == "value" || key == "values" {
		return object
	}
	return key
}

// redactArguments redacts a list. A list of texts only is treated as arguments of a command.
func redactArguments(list []any) {
	args := make([]string, len(list))
	for i, v := range list {
		text, ok := v.(string)
		if !ok {
			for i := range list {
				list[i] = redactValue(list[i])
			}
			return
		}
		args[i] = text
	}
	for i, clean := range hostfs.Redact(args) {
		list[i] = hostfs.RedactText(clean)
	}
}

// redactYAML redacts secrets in a YAML value. It keeps style and comments.
func redactYAML(n *yaml.Node) error {
	var v any
	if err := n.Decode(&v); err != nil {
		return err
	}
	replaceTexts(n, redactValue(v))
	return nil
}

// replaceTexts sets the texts of a node to those of v, which is its redacted value.
func replaceTexts(n *yaml.Node, v any) {
	switch v := v.(type) {
	case string:
		if n.Value != v {
			n.SetString(v)
		}
	case []any:
		for i := range v {
			replaceTexts(n.Content[i], v[i])
		}
	case map[string]any:
		for i := 0; i+1 < len(n.Content); i += 2 {
			replaceTexts(n.Content[i+1], v[n.Content[i].Value])
		}
	}
}
