package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// suite is a suite of the mirror, accessed through a private apt. It has its own apt state, so that
// the newest version of a package is the suite's.
type suite struct {
	fetcher
	name string
	arch string   // Debian's name of the machine architecture
	lock *os.File // the cache's lock
}

// record is a package in a suite's index.
type record struct {
	name, version string
	file          string // base name of its file in the archive
	size          int64  // bytes of that file
	installed     int64  // size when unpacked, in bytes
	sha256        string // of the file, lower-case hexadecimal
	parts         []string
}

// packageCache is the cache that saves apt from parsing the whole index, for a second, in each
// call. Its 50 MB are removed after the last call.
const packageCache = "pkgcache.bin"

func (s suite) path(name string) string {
	return filepath.Join(s.cacheDir, "apt", s.name+"-"+s.arch, name)
}

func (s suite) setUp(ctx context.Context) error {
	for _, dir := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(s.path(dir), 0o755); err != nil {
			return err
		}
	}
	options := "signed-by=" + keyring
	if s.trusted {
		options = "trusted=yes"
	}
	config, err := s.config(ctx)
	if err != nil {
		return err
	}
	for name, content := range map[string]string{
		"sources.list": fmt.Sprintf("deb [%s] %s %s main\n", options, s.mirror, s.name),
		"status":       "", // no package is installed
		"apt.conf":     config,
	} {
		// Not readable by others: the configuration of a proxy may contain a password.
		if err := os.WriteFile(s.path(name), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// config returns a configuration for apt that replaces the machine's, to avoid its hooks and its
// additional indexes. It keeps the settings for reaching mirrors.
func (s suite) config(ctx context.Context) (string, error) {
	out, err := command{name: "apt-config", args: []string{"dump", "Acquire"}}.run(ctx)
	if err != nil {
		return "", err
	}
	lines := []string{`Dir::Etc::main "/dev/null";`, `Dir::Etc::parts "/dev/null";`}
	for line := range strings.Lines(string(out)) {
		for _, option := range []string{"http::", "https::", "Retries ", "ForceIPv4 ", "ForceIPv6 ", "Check-Valid-Until ", "Check-Date "} {
			if strings.HasPrefix(line, "Acquire::"+option) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
	}
	return strings.Join(lines, "\n") + "\n", nil
}

// apt runs a program of apt on the private state, with dir as working directory.
func (s suite) apt(ctx context.Context, dir, program string, args ...string) ([]byte, error) {
	options := []string{
		"-q",
		"-o", "Dir::Etc::sourcelist=" + s.path("sources.list"),
		"-o", "Dir::Etc::sourceparts=/dev/null",
		"-o", "Dir::State=" + s.path(""),
		"-o", "Dir::State::lists=" + s.path("lists"),
		"-o", "Dir::State::status=" + s.path("status"),
		"-o", "Dir::Cache::archives=" + s.path("archives"),
		"-o", "Dir::Cache::pkgcache=" + s.path(packageCache),
		"-o", "Dir::Cache::srcpkgcache=",
		"-o", "APT::Architecture=" + s.arch,
		"-o", "APT::Architectures=" + s.arch,
		"-o", "APT::Sandbox::User=", // no sandbox user: the cache belongs to the caller and is closed to others
		"-o", "Acquire::Languages=none",
		"-o", "Acquire::GzipIndexes=true",
	}
	return command{
		name: program, args: append(options, args...), dir: dir,
		env: []string{"APT_CONFIG=" + s.path("apt.conf")}, keep: []*os.File{s.lock},
	}.run(ctx)
}

func (s suite) updateIndex(ctx context.Context) error {
	_, err := s.apt(ctx, "", "apt-get", "-o", "APT::Update::Error-Mode=any", "update")
	return s.explain(err)
}

// explain adds to a mirror's failure what to do about it.
func (s suite) explain(err error) error {
	if _, ok := errors.AsType[*commandError](err); !ok {
		return err
	}
	return &SetupError{
		What: fmt.Sprintf("fetch from suite %s of %s: %v", s.name, s.mirror, err),
		Do:   "see that it can be reached and still has the suite, or set " + mirrorEnv + " to another mirror",
		Err:  err,
	}
}

// downloadTo fetches a package's file to path. It uses a temporary folder because apt chooses the
// file's name.
func (s suite) downloadTo(ctx context.Context, r record, path string) (err error) {
	dir := path + ".part"
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if _, err := s.apt(ctx, dir, "apt-get", "download", r.name+"="+r.version); err != nil {
		return s.explain(err)
	}
	deb, err := only(dir, "*.deb")
	if err != nil {
		return err
	}
	return os.Rename(deb, path)
}

// resolve returns the packages that make up the kernel of a package, sorted by name.
func (s suite) resolve(ctx context.Context, pkg string) ([]record, error) {
	var found []record
	seen := map[string]bool{pkg: true}
	for next := []string{pkg}; len(next) > 0; {
		records, err := s.show(ctx, next)
		if err != nil {
			return nil, err
		}
		next = nil
		for _, r := range records {
			if kernelPart.MatchString(r.name) {
				found = append(found, r)
			}
			for _, part := range r.parts {
				if !seen[part] {
					seen[part] = true
					next = append(next, part)
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b record) int { return strings.Compare(a.name, b.name) })
	return found, nil
}

// show returns the index records of packages, each given as name or name=version.
func (s suite) show(ctx context.Context, names []string) ([]record, error) {
	out, err := s.apt(ctx, "", "apt-cache", append([]string{"--no-all-versions", "show"}, names...)...)
	// apt reports only some of the missing packages.
	if err != nil && !complains(err, "No packages found") && !complains(err, "was not found") {
		return nil, err
	}
	records, err := parseRecords(out)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if !slices.ContainsFunc(records, func(r record) bool { return n == r.name || n == r.name+"="+r.version }) {
			return nil, &SetupError{What: fmt.Sprintf("suite %s has no package %s", s.name, n), Do: "correct kernels.txt"}
		}
	}
	return records, nil
}

func parseRecords(index []byte) ([]record, error) {
	stanzas, err := parseControl(bytes.NewReader(index))
	if err != nil {
		return nil, err
	}
	records := make([]record, 0, len(stanzas))
	for _, st := range stanzas {
		r := record{
			name: st["package"], version: st["version"], file: filepath.Base(st["filename"]), sha256: strings.ToLower(st["sha256"]),
			parts: kernelParts(st["pre-depends"] + "," + st["depends"]),
		}
		if r.name == "" || r.version == "" || st["filename"] == "" || len(r.sha256) != 64 {
			return nil, fmt.Errorf("index: package %q: without version, file name or SHA256", r.name)
		}
		var err1, err2 error
		r.size, err1 = strconv.ParseInt(st["size"], 10, 64)
		r.installed, err2 = strconv.ParseInt(st["installed-size"], 10, 64)
		if err := errors.Join(err1, err2); err != nil || r.size < 0 || r.installed < 0 || r.installed > 1<<40 {
			return nil, fmt.Errorf("index: package %s: size %q, installed size %q", r.name, st["size"], st["installed-size"])
		}
		r.installed *= 1024
		records = append(records, r)
	}
	return records, nil
}
