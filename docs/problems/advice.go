// Package problems has the pages of this folder, one a problem, and what they advise.
//
// The pages are for people; of their form it knows the heading "What to do" alone. What is said
// there is said nowhere else.
package problems

import (
	"embed"
	"regexp"
	"strings"
	"unicode"

	"github.com/kernosis/kernosis/collector/display"
)

//go:embed *.md
var pages embed.FS

// Folder is where the pages are, as rules and people name it: "problems/OOMKilling" of a
// rule is docs/problems/OOMKilling.md.
const Folder = "problems/"

const (
	maxLines = 3
	// maxLine is room for two sentences.
	maxLine = 260
	// maxHops bounds how often a page may send to another.
	maxHops = 3
)

// Has reports whether there is a page. It takes names as Advice does.
func Has(page string) bool {
	_, ok := read(page)
	return ok
}

// Text returns a page as it is, in Markdown. It takes names as Advice does.
func Text(page string) (string, bool) { return read(page) }

// Advice returns the first sentences of what a page says is to be done, a line each where
// the page has a list; nil where there is no such page. page is a rule's doc
// ("problems/OOMKilling") or its last part. A page that says "As for" another is answered
// by that one.
func Advice(page string) []string {
	for range maxHops {
		text, ok := read(page)
		if !ok {
			return nil
		}
		_, text, ok = strings.Cut(text, "\n## What to do\n")
		if !ok {
			return nil
		}
		text, _, _ = strings.Cut(text, "\n## ")
		text = strings.TrimSpace(text)
		other, sent := sentTo(text)
		if !sent {
			return lines(text)
		}
		page = other
	}
	return nil
}

// sentTo finds the page that another one sends to.
func sentTo(text string) (page string, ok bool) {
	m := regexp.MustCompile(`^(?:- )?As for \[[^]]*\]\(([A-Za-z0-9]+)\.md\)[.:,]`).FindStringSubmatch(text)
	if m == nil || !Has(m[1]) {
		return "", false
	}
	return m[1], true
}

func read(page string) (string, bool) {
	page = strings.TrimPrefix(page, Folder)
	if page == "" || strings.ContainsFunc(page, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		return "", false
	}
	raw, err := pages.ReadFile(page + ".md")
	return string(raw), err == nil
}

// lines makes lines of a paragraph or a list.
func lines(text string) []string {
	var out []string
	for part := range strings.SplitSeq("\n"+text, "\n- ") {
		if part = plain(part); part != "" && len(out) < maxLines {
			out = append(out, sentences(part))
		}
	}
	return out
}

// plain takes Markdown away.
func plain(text string) string {
	text = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(text, "$1")
	text = strings.NewReplacer("`", "", "**", "").Replace(text)
	return strings.Join(strings.Fields(text), " ")
}

// sentences returns the first ones of a text, two at most, and of a long first one as much
// as fits.
func sentences(text string) string {
	end := 0
	for range 2 {
		i := strings.Index(text[end:], ". ")
		if i < 0 {
			i = len(text) - end - 1
		}
		if end > 0 && end+i+1 > maxLine {
			break
		}
		end += i + 1
		if end >= len(text) {
			break
		}
	}
	text = strings.TrimSpace(text[:end])
	if len(text) <= maxLine {
		return strings.TrimSuffix(text, ".")
	}
	return display.Cut(text, maxLine)
}
