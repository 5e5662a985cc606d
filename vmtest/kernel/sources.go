package kernel

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mirrorEnv names the environment variable that overrides the mirror from the machine's apt
// sources.
const mirrorEnv = "KERNOSIS_VMTEST_MIRROR"

// keyring contains the keys of Debian's archive. It is in package debian-archive-keyring.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// source is one entry in apt's sources.
type source struct {
	uri        string
	suites     []string
	components []string
	signedBy   string
}

// debian reports whether the source is Debian's main archive, the only one that contains all
// suites. Other archives also use its suite names, and some its path, but not its key.
func (s source) debian() bool {
	switch {
	case !strings.Contains(s.uri, ":/") || strings.HasPrefix(s.uri, "cdrom:"):
		return false
	case !slices.Contains(s.components, "main"):
		return false
	case !slices.ContainsFunc(s.suites, func(suite string) bool { return !strings.Contains(suite, "security") }):
		return false
	case strings.Contains(s.signedBy, "debian-archive-"):
		return true
	default:
		return s.signedBy == "" && strings.HasSuffix(strings.TrimRight(s.uri, "/"), "/debian")
	}
}

// findMirror returns the Debian mirror in the apt sources below etc.
func findMirror(etc string) (string, error) {
	if m := os.Getenv(mirrorEnv); m != "" {
		if !strings.Contains(m, ":/") || strings.ContainsAny(m, " \t\r\n[]#\"") {
			return "", &SetupError{What: fmt.Sprintf("%s is %q", mirrorEnv, m), Do: "set it to the URL of a Debian mirror"}
		}
		return m, nil
	}
	paths := []string{filepath.Join(etc, "sources.list")}
	for _, pattern := range []string{"*.sources", "*.list"} {
		found, err := filepath.Glob(filepath.Join(etc, "sources.list.d", pattern))
		if err != nil {
			return "", err
		}
		paths = append(paths, found...)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue
		} else if err != nil {
			return "", err
		}
		sources, err := parseSources(path, bytes.NewReader(text))
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		for _, s := range sources {
			if s.debian() {
				return s.uri, nil
			}
		}
	}
	return "", &SetupError{
		What: "no Debian mirror in the apt sources of " + etc,
		Do:   "set " + mirrorEnv + " to the URL of one",
	}
}

// parseSources parses a file of apt sources: stanzas if its name ends in .sources, otherwise lines.
// It skips what apt itself would reject, because that must not prevent finding the one source that
// is needed.
func parseSources(name string, r io.Reader) ([]source, error) {
	if strings.HasSuffix(name, ".sources") {
		return parseStanzas(r)
	}
	var sources []source
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxControlLine)
	for lines.Scan() {
		if s, ok := parseSourceLine(lines.Text()); ok {
			sources = append(sources, s)
		}
	}
	return sources, lines.Err()
}

// parseSourceLine parses "deb [option=value …] uri suite component…".
func parseSourceLine(line string) (source, bool) {
	line, _, _ = strings.Cut(line, "#")
	rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb")
	if !ok || strings.TrimLeft(rest, " \t") == rest { // deb-src
		return source{}, false
	}
	rest = strings.TrimSpace(rest)
	var s source
	if options, ok := strings.CutPrefix(rest, "["); ok {
		if options, rest, ok = strings.Cut(options, "]"); !ok {
			return source{}, false
		}
		for o := range strings.FieldsSeq(options) {
			if v, ok := strings.CutPrefix(o, "signed-by="); ok {
				s.signedBy = v
			}
		}
	}
	fields := strings.Fields(rest)
	if len(fields) < 3 {
		return source{}, false
	}
	s.uri, s.suites, s.components = fields[0], fields[1:2], fields[2:]
	return s, true
}

// parseStanzas parses sources in the deb822 format.
func parseStanzas(r io.Reader) ([]source, error) {
	stanzas, err := parseControl(r)
	var sources []source
	for _, st := range stanzas {
		if !slices.Contains(strings.Fields(st["types"]), "deb") || slices.Contains([]string{"no", "false", "0", "off", "disable"}, strings.ToLower(st["enabled"])) {
			continue
		}
		for uri := range strings.FieldsSeq(st["uris"]) {
			sources = append(sources, source{
				uri: uri, suites: strings.Fields(st["suites"]),
				components: strings.Fields(st["components"]), signedBy: st["signed-by"],
			})
		}
	}
	return sources, err
}
