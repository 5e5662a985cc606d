package kernel

import (
	"bufio"
	"io"
	"regexp"
	"strings"
)

// maxControlLine bounds a line: the longest real ones are lists of dependencies
// of a few KiB.
const maxControlLine = 1 << 20

// parseControl parses stanzas of "Field: value" separated by empty lines: the
// form of apt's sources and indexes. Field names are lower case in the result;
// the lines of a value are joined by newlines, without their indentation; lines
// that begin with "#" are comments.
func parseControl(r io.Reader) ([]map[string]string, error) {
	var (
		stanzas []map[string]string
		current map[string]string
		field   string
	)
	const space = " \t\r" // not all that Unicode has: it would end stanzas
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxControlLine)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), space)
		switch {
		case line == "":
			current, field = nil, ""
		case line[0] == '#':
		case line[0] == ' ' || line[0] == '\t':
			if field != "" {
				current[field] = strings.TrimPrefix(current[field]+"\n"+strings.Trim(line, space), "\n")
			}
		default:
			name, value, ok := strings.Cut(line, ":")
			if !ok || name == "" {
				field = ""
				continue
			}
			if current == nil {
				current = map[string]string{}
				stanzas = append(stanzas, current)
			}
			field = strings.ToLower(strings.Trim(name, space))
			current[field] = strings.Trim(value, space)
		}
	}
	return stanzas, lines.Err()
}

// kernelPart is the name of a package that holds a piece of one kernel. Until
// Debian 13 linux-image-RELEASE is all of it. Later it only depends on
// linux-binary-RELEASE (vmlinuz), linux-modules-RELEASE and linux-base-RELEASE
// (configuration, lists of what is built in). Packages without a release, such as
// linux-base, are not part of a kernel.
var kernelPart = regexp.MustCompile(`^linux-(image|binary|modules|base)-[0-9]`)

// dependency is "name (= version)", without the version where none is demanded
// exactly: the pieces of one kernel are.
var dependency = regexp.MustCompile(`^\s*([a-z0-9][a-z0-9.+-]+)(?::[a-z0-9]+)?(?:\s*\(\s*=\s*([^)\s]+)\s*\))?`)

// kernelParts returns those dependencies that are pieces of a kernel, in the
// form of apt's arguments: name or name=version.
func kernelParts(depends string) []string {
	var parts []string
	for _, clause := range strings.FieldsFunc(depends, func(r rune) bool { return r == ',' || r == '|' }) {
		m := dependency.FindStringSubmatch(clause)
		switch {
		case m == nil || !kernelPart.MatchString(m[1]):
		case m[2] != "":
			parts = append(parts, m[1]+"="+m[2])
		default:
			parts = append(parts, m[1])
		}
	}
	return parts
}
