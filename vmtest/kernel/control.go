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

// parseControl parses stanzas of "Field: value" separated by empty lines, the format of apt's
// sources and indexes. It returns field names in lower case; continuation lines are joined by
// newlines, without their indentation. Lines that start with "#" are comments.
func parseControl(r io.Reader) ([]map[string]string, error) {
	var (
		stanzas []map[string]string
		current map[string]string
		field   string
	)
	const space = " \t\r" // not all of Unicode's white space, which would end stanzas
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

// kernelPart matches the name of a package that contains a part of one kernel. Up to Debian 13
// linux-image-RELEASE is the whole kernel. Later it only depends on linux-binary-RELEASE (vmlinuz),
// linux-modules-RELEASE and linux-base-RELEASE (configuration, lists of built-in modules). Packages
// without a release, such as linux-base, are not part of a kernel.
var kernelPart = regexp.MustCompile(`^linux-(image|binary|modules|base)-[0-9]`)

// dependency matches "name (= version)". It captures the version only if an exact one is required,
// as between the parts of one kernel.
var dependency = regexp.MustCompile(`^\s*([a-z0-9][a-z0-9.+-]+)(?::[a-z0-9]+)?(?:\s*\(\s*=\s*([^)\s]+)\s*\))?`)

// kernelParts returns the dependencies that are parts of a kernel, as arguments for apt: name or
// name=version.
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
