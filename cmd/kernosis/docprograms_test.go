package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// docPrograms has what commands of the documentation may name: programs, targets of the Makefile,
// kinds, values of the chart.
type docPrograms struct {
	makefile string
	values   map[string]any      // the schema of the chart's values
	kinds    map[string]docKind  // kinds of Kernosis, by each of their names
	tests    map[string][]string // the names of tests and benchmarks, by folder
}

type docKind struct{ namespaced bool }

func newDocPrograms(t *testing.T) *docPrograms {
	t.Helper()
	p := &docPrograms{makefile: string(readRepository(t, "Makefile")), kinds: map[string]docKind{}, tests: map[string][]string{}}
	if err := json.Unmarshal(readRepository(t, "deploy/chart/kernosis/values.schema.json"), &p.values); err != nil {
		t.Fatal(err)
	}
	crds, err := filepath.Glob(filepath.Join(repository, "diagnose/api/crds/*.yaml"))
	if err != nil || len(crds) == 0 {
		t.Fatal(crds, err)
	}
	for _, path := range crds {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var crd struct {
			Spec struct {
				Group, Scope string
				Names        struct {
					Plural, Singular string
					ShortNames       []string `yaml:"shortNames"`
				}
			}
		}
		if err := yaml.Unmarshal(raw, &crd); err != nil {
			t.Fatal(err)
		}
		names := crd.Spec.Names
		for _, name := range append(names.ShortNames, names.Plural, names.Singular, names.Plural+"."+crd.Spec.Group) {
			p.kinds[name] = docKind{namespaced: crd.Spec.Scope == "Namespaced"}
		}
	}
	return p
}

func readRepository(t *testing.T, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(repository, path))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// docOtherPrograms returns programs that commands of the documentation may call and that are not
// checked: those of the reader's machine, then those of a node.
func docOtherPrograms() []string {
	return strings.Fields("argocd awk cat cd command cosign cp crane ctr curl date df docker echo extract-vmlinux find gh git grep grype head jq" +
		" journalctl k3s kind ln ls mkdir oc sed sh sha256sum skopeo sleep sort stat strings tail tar time touch trivy uname uniq wc" +
		" bridge btrfs chronyc chroot conntrack coredumpctl devlink dmesg dmsetup ethtool findmnt ip ipmitool iptables-save iscsiadm losetup lsblk" +
		" lspci lvs mdadm multipath nc nfsstat nft nvidia-smi nvme ps ras-mc-ctl sensors smartctl ss swapon sysctl systemctl systemd-cgtop" +
		" timedatectl top")
}

func (p *docPrograms) check(c *docCommand) error {
	program, args := c.words[0], c.words[1:]
	built, inBin := strings.CutPrefix(program, "bin/")
	switch {
	case program == "kernosis" || built == "kernosis":
		return checkKernosis(c, args)
	case inBin && strings.Contains(p.makefile, "-o "+program+" "):
		return nil
	case program == "make":
		return p.checkMake(args)
	case program == "go":
		return p.checkGo(args)
	case program == "helm":
		return p.checkHelm(args)
	case program == "--set": // a flag of helm in a sentence
		return p.checkHelm(append([]string{"install"}, c.words...))
	case program == "kubectl" && len(args) > 0 && args[0] == "kernosis":
		return checkKernosis(c, args[1:])
	case program == "kubectl":
		return p.checkKubectl(c, args)
	case slices.Contains(docOtherPrograms(), program) || program == "COMMAND": // a program of the reader's
		return nil
	}
	return fmt.Errorf("the documentation knows no program %s", program)
}

// files returns the files that a page asks its reader to write, and their folders.
func (p *docPage) files() []string {
	var all []string
	for i := range p.blocks {
		for path := p.blocks[i].file(); filepath.IsLocal(path) && path != "."; path = filepath.Dir(path) {
			all = append(all, path)
		}
	}
	return all
}

var (
	inRepository = regexp.MustCompile(`^(?:\./)?((?:bpf|cmd|collector|deploy|detector|diagnose|docs|reporter|testdata|vmtest|\.github|\.tools)(?:/.*)?)$`)
	anyPackage   = regexp.MustCompile(`/?\.\.\.$`)
)

// paths checks that files of the repository exist, or are written by the reader of the page.
func (p *docPrograms) paths(c *docCommand, files []string) error {
	for _, word := range c.words[1:] {
		if _, value, ok := strings.Cut(word, "="); ok {
			word = value
		}
		m := inRepository.FindStringSubmatch(anyPackage.ReplaceAllString(word, ""))
		if m == nil || docPlaceholder.MatchString(word) {
			continue
		}
		path := filepath.Clean(m[1])
		if _, err := os.Stat(filepath.Join(repository, path)); err != nil && !slices.Contains(files, path) {
			return fmt.Errorf("%s: no such file in the repository", word)
		}
	}
	return nil
}

func (p *docPrograms) checkMake(args []string) error {
	var errs []error
	for _, arg := range args {
		name, _, variable := strings.Cut(arg, "=")
		pattern := `(?m)^` + regexp.QuoteMeta(name) + `:`
		if variable {
			pattern = `\$\((or \$\()?` + regexp.QuoteMeta(name) + `[):]`
		}
		if docPlaceholder.MatchString(name) && !variable {
			continue
		}
		if !regexp.MustCompile(pattern).MatchString(p.makefile) {
			errs = append(errs, fmt.Errorf("the Makefile has no %s", name))
		}
	}
	return errors.Join(errs...)
}

// checkGo checks that the packages have the named tests and benchmarks.
func (p *docPrograms) checkGo(args []string) error {
	if len(args) == 0 || args[0] != "test" {
		return nil
	}
	var names []string
	for _, arg := range args {
		if dir, ok := strings.CutPrefix(arg, "./"); ok {
			names = append(names, p.testsOf(dir)...)
		}
	}
	for i, arg := range args {
		if arg != "-run" && arg != "-bench" || i+1 == len(args) || args[i+1] == "^$" || len(names) == 0 {
			continue
		}
		for pattern := range strings.SplitSeq(args[i+1], "|") {
			re, err := regexp.Compile(pattern)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(names, re.MatchString) {
				return fmt.Errorf("the packages have no test or benchmark %s", pattern)
			}
		}
	}
	return nil
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w*)\(`)

func (p *docPrograms) testsOf(dir string) []string {
	if names, ok := p.tests[dir]; ok {
		return names
	}
	files, _ := filepath.Glob(filepath.Join(repository, dir, "*_test.go")) // the pattern is well-formed
	var names []string
	for _, path := range files {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for _, m := range testFunction.FindAllSubmatch(raw, -1) {
			names = append(names, string(m[1]))
		}
	}
	p.tests[dir] = names
	return names
}

func (p *docPrograms) checkHelm(args []string) error {
	commands := []string{"install", "upgrade", "uninstall", "template", "rollback", "lint"}
	if len(args) == 0 || !slices.Contains(commands, args[0]) {
		return fmt.Errorf("helm: want one of %s", strings.Join(commands, ", "))
	}
	for i, arg := range args[:len(args)-1] {
		if slices.Contains([]string{"--set", "--set-string", "--set-file", "--set-json"}, arg) {
			key, _, _ := strings.Cut(args[i+1], "=")
			if err := p.value(key); err != nil {
				return err
			}
		}
	}
	return nil
}

// value checks that the chart has a value, written as for --set.
func (p *docPrograms) value(path string) error {
	at := p.values
	for _, key := range splitValue(path) {
		key, _, _ = strings.Cut(key, "[")
		for ref, ok := at["$ref"].(string); ok; ref, ok = at["$ref"].(string) {
			definitions, _ := p.values["definitions"].(map[string]any)
			at, _ = definitions[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any)
		}
		properties, _ := at["properties"].(map[string]any)
		next, ok := properties[key].(map[string]any)
		if !ok {
			next, ok = at["additionalProperties"].(map[string]any)
		}
		if !ok && (properties != nil || at["type"] != "object") {
			return fmt.Errorf("the chart has no value %s: there is no %s", path, key)
		}
		if at = next; at["items"] != nil {
			at, _ = at["items"].(map[string]any)
		}
	}
	return nil
}

// splitValue splits at dots without a backslash.
func splitValue(path string) []string {
	keys := strings.Split(strings.ReplaceAll(path, `\.`, "\x00"), ".")
	for i := range keys {
		keys[i] = strings.ReplaceAll(keys[i], "\x00", ".")
	}
	return keys
}
