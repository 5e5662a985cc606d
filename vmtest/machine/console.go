package machine

import (
	"os"
	"regexp"
	"strings"
)

// consoleTail is how many of the console's last lines are returned: a panic with its stack has
// about forty.
const consoleTail = 60

// fatal matches the start of a kernel's message about a fatal error.
var fatal = regexp.MustCompile(`Kernel panic - not syncing.*|BUG: .*|Oops: .*|general protection fault.*|Unable to mount root.*`)

// readConsole returns the last lines of the kernel's console, and the first message about a fatal
// error.
func readConsole(path string) (tail, reason string) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", ""
	}
	text := strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r >= ' ' {
			return r
		}
		return -1
	}, strings.ToValidUTF8(string(raw), "?"))
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-consoleTail):], "\n"), fatal.FindString(text)
}
