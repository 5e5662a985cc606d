package detector_test

import (
	"testing"

	"github.com/kernosis/kernosis/detector"
	"github.com/kernosis/kernosis/detector/rules"
)

func TestLoadShipped(t *testing.T) {
	if _, err := detector.Load(rules.FS); err != nil {
		t.Fatal(err)
	}
}
