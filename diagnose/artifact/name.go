package artifact

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kernosis/kernosis/collector/display"
)

// noFollow refuses a symbolic link as the last part of a path. [os.Root] checks the others.
const noFollow = unix.O_NOFOLLOW

const (
	maxName = 100
	maxID   = 200
)

// checkName returns an error if name is not valid for an artifact. Names that begin with a dot are
// reserved.
func checkName(name string) error { return check("artifact name", name, maxName) }

// checkID returns an error if id is not valid for a diagnosis.
func checkID(id string) error { return check("diagnosis", id, maxID) }

func check(what, s string, limit int) error {
	ok := s != "" && len(s) <= limit && s[0] != '.' && s[0] != '-'
	for i := range len(s) {
		c := s[i]
		ok = ok && (c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || strings.IndexByte("._-", c) >= 0)
	}
	if !ok {
		return fmt.Errorf(`%s "%s": want letters, digits, '.', '_' and '-', a letter or digit first, at most %d`, what, display.Safe(s, limit), limit)
	}
	return nil
}
