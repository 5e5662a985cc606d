package kernosis_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"sigs.k8s.io/yaml"
)

// pages returns the texts of all pages of the documentation, by path.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		maps.Copy(all, texts(t, pattern))
	}
	return all
}

var (
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// anchors returns the anchors of a page's headings, as GitHub generates them.
func anchors(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, m[1])
		for n, first := 1, name; all[name]; n++ {
			name = fmt.Sprintf("%s-%d", first, n)
		}
		all[name] = true
	}
	return all
}

// Every link in the documentation points to a file, and to an existing heading in it.
func TestLinks(t *testing.T) {
	all := pages(t)
	links := 0
	for name, text := range all {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			links++
			path, anchor, _ := strings.Cut(m[1], "#")
			target := name
			if path != "" {
				target = filepath.Join(filepath.Dir(name), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s: no such file", name, m[1])
			} else if anchor != "" && strings.HasSuffix(target, ".md") && !anchors(read(t, target))[anchor] {
				t.Errorf("%s: %s: no such heading", name, m[1])
			}
		}
	}
	if links < 500 {
		t.Errorf("found %d links", links)
	}
}

// The index of the documentation lists each page once, by its path or by its folder.
func TestIndexOfDocs(t *testing.T) {
	lists := map[string]int{}
	for line := range strings.Lines(read(t, "docs/README.md")) {
		if m := regexp.MustCompile(`^- \[[^]]+\]\(([^)#]+)\)`).FindStringSubmatch(line); m != nil {
			lists[filepath.Join("docs", m[1])]++
		}
	}
	for name := range pages(t) {
		if n := lists[name] + lists[filepath.Dir(name)]; strings.HasPrefix(name, "docs/") && name != "docs/README.md" && n != 1 {
			t.Errorf("docs/README.md lists %s %d times", name, n)
		}
	}
}

// The site's navigation lists each page once, by its path or by a pattern for a folder.
func TestSiteHasEveryPage(t *testing.T) {
	var site struct {
		Nav  []any  `json:"nav"`
		Repo string `json:"repo_url"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/site/mkdocs.yml")), &site); err != nil {
		t.Fatal(err)
	}
	if site.Repo != "https://"+module {
		t.Errorf("links that leave docs/ lead to %s", site.Repo)
	}
	listed := map[string]int{}
	for _, pattern := range navEntries(site.Nav) {
		names, err := filepath.Glob(filepath.Join("docs", pattern))
		if err != nil || len(names) == 0 {
			t.Errorf("the navigation has %s: %d files, %v", pattern, len(names), err)
		}
		for _, name := range names {
			listed[name]++
		}
	}
	for name := range pages(t) {
		if strings.HasPrefix(name, "docs/") && listed[name] != 1 {
			t.Errorf("deploy/site/mkdocs.yml lists %s %d times", name, listed[name])
		}
	}
}

// navEntries returns the paths of a navigation: entries are paths, or titles with a path or
// with entries below them.
func navEntries(nav any) []string {
	var all []string
	switch entry := nav.(type) {
	case string:
		all = append(all, entry)
	case []any:
		for _, e := range entry {
			all = append(all, navEntries(e)...)
		}
	case map[string]any:
		for _, e := range entry {
			all = append(all, navEntries(e)...)
		}
	}
	return all
}

// MkDocs, which builds the site, renders an indented fence as text.
func TestFencesAreNotIndented(t *testing.T) {
	indented := regexp.MustCompile("^ +```")
	for name, text := range pages(t) {
		n := 0
		for line := range strings.Lines(text) {
			n++
			if indented.MatchString(line) {
				t.Errorf("%s:%d: move the code block out of the list", name, n)
			}
		}
	}
}
