// Package problems holds the pages of this folder, one per problem, and extracts their advice.
//
// The pages are written for people. The code depends only on the heading "What to do". The advice
// is not repeated elsewhere.
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

// Folder is the prefix of pages in rules and commands: a rule's "problems/OOMKilling" is
// docs/problems/OOMKilling.md.
const Folder = "problems/"

const (
	maxLines = 3
	// maxLine fits two sentences.
	maxLine = 260
	// maxHops bounds how many references from page to page are followed.
	maxHops = 3
)

// Has reports whether a page exists. It accepts names like Advice.
func Has(page string) bool {
	_, ok := Text(page)
	return ok
}

// Advice returns the first sentences of a page's section "What to do", one line per item if it
// is a list; nil if there is no such page. page is a rule's doc ("problems/OOMKilling") or its last
// part. If the section starts with "As for" another page, Advice returns that page's advice.
func Advice(page string) []string {
	for range maxHops {
		text, ok := Text(page)
		if !ok {
			return nil
		}
		_, text, ok = strings.Cut(text, "\n## What to do\n")
		if !ok {
			return nil
		}
		text, _, _ = strings.Cut(text, "\n## ")
		text = strings.TrimSpace(text)
		if page = sentTo(text); page == "" {
			return lines(text)
		}
	}
	return nil
}

// sentTo returns the page that the text refers to, or "".
func sentTo(text string) string {
	m := regexp.MustCompile(`^(?:- )?As for \[[^]]*\]\(([A-Za-z0-9]+)\.md\)[.:,]`).FindStringSubmatch(text)
	if m == nil || !Has(m[1]) {
		return ""
	}
	return m[1]
}

// Text returns a page in Markdown, unchanged. It accepts names like Advice.
func Text(page string) (string, bool) {
	page = strings.TrimPrefix(page, Folder)
	if page == "" || strings.ContainsFunc(page, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		return "", false
	}
	raw, err := pages.ReadFile(page + ".md")
	return string(raw), err == nil
}

// lines returns a paragraph as one line, or a list as one line per item.
func lines(text string) []string {
	var out []string
	for part := range strings.SplitSeq("\n"+text, "\n- ") {
		if part = plain(part); part != "" && len(out) < maxLines {
			out = append(out, sentences(part))
		}
	}
	return out
}

// plain removes Markdown.
func plain(text string) string {
	text = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(text, "$1")
	text = strings.NewReplacer("`", "", "**", "").Replace(text)
	return strings.Join(strings.Fields(text), " ")
}

// sentences returns the first two sentences of a text, or only the first if both are too long,
// cut to maxLine.
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
