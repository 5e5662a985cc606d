package output

import (
	"fmt"
	"io"
	"strings"

	"github.com/kernosis/kernosis/collector/display"
)

const gap = 2

// Rows is text in columns. Cells may be coloured ([Colours]).
type Rows struct {
	// Most is the number of columns to write; 0: all.
	Most int

	rows [][]string
}

// Add adds a row.
func (r *Rows) Add(cells ...string) {
	if r.Most > 0 && len(cells) > r.Most {
		cells = cells[:r.Most]
	}
	r.rows = append(r.rows, cells)
}

// Len returns the number of rows.
func (r *Rows) Len() int { return len(r.rows) }

// String returns all rows, one per line, without trailing spaces.
func (r *Rows) String() string {
	var widths []int
	for _, row := range r.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			if i < len(row)-1 { // the last cell needs no padding
				widths[i] = max(widths[i], display.Cells(cell))
			}
		}
	}
	var b strings.Builder
	for _, row := range r.rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-display.Cells(cell)+gap))
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// Write writes all rows.
func (r *Rows) Write(w io.Writer) error {
	if _, err := io.WriteString(w, r.String()); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}
