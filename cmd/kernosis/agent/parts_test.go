package agent

import (
	"errors"
	"slices"
	"testing"
)

// Parts are closed in reverse order, also after an error, and no error is lost.
func TestPartsAreClosed(t *testing.T) {
	var p parts
	var closed []int
	first := errors.New("first")
	for i := range 3 {
		p.onClose(func() error {
			closed = append(closed, i)
			if i == 1 {
				return first
			}
			return nil
		})
	}
	if err := p.close(); !errors.Is(err, first) || !slices.Equal(closed, []int{2, 1, 0}) {
		t.Errorf("%v, %v", closed, err)
	}
}
