package output

import (
	"os"

	"golang.org/x/term"
)

// Colours paints words. The zero value paints none.
type Colours struct{ on bool }

// ColoursOf returns the colours for a writer: none where it is no terminal, or the environment
// has NO_COLOR (no-color.org) or says that the terminal knows none.
func ColoursOf(w any) Colours {
	return Colours{on: Terminal(w) != nil && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// Terminal returns the terminal that a reader or writer is; nil: it is none.
func Terminal(rw any) *os.File {
	file, ok := rw.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) { //nolint:gosec // a file's descriptor
		return nil
	}
	return file
}

// Bad is for what is wrong: red.
func (c Colours) Bad(text string) string { return c.paint("31", text) }

// Doubtful is for what is not known: yellow.
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
