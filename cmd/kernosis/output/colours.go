package output

import (
	"os"

	"golang.org/x/term"
)

// Colours paints words. The zero value paints none.
type Colours struct{ on bool }

// ColoursOf returns the colours for a writer: none if it is not a terminal, if NO_COLOR is set
// (no-color.org), or if TERM is "dumb".
func ColoursOf(w any) Colours {
	return Colours{on: Terminal(w) != nil && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Terminal returns a reader or writer as a file if it is a terminal, or else nil.
func Terminal(rw any) *os.File {
	file, ok := rw.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) { //nolint:gosec // a file's descriptor
		return nil
	}
	return file
}

// Bad paints what is wrong: red.
func (c Colours) Bad(text string) string { return c.paint("31", text) }

// Doubtful paints what is unknown: yellow.
func (c Colours) Doubtful(text string) string { return c.paint("33", text) }

// Status paints the status of a condition.
func (c Colours) Status(status string) string {
	switch status {
	case "True":
		return c.Bad(status)
	case "Unknown":
		return c.Doubtful(status)
	}
	return status
}

func (c Colours) paint(code, text string) string {
	if !c.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
