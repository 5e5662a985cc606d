package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// repository is the module's root, relative to this package.
const repository = "../.."

// docPage is a page of the documentation. Paths are relative to the repository.
type docPage struct {
	path   string
	blocks []docBlock
	inline []docCode
}

// docBlock is a fenced block.
type docBlock struct {
	page     string
	line     int // line of the page where the block's first line is
	language string
	before   string // the paragraph before it
	lines    []string
}

// docCode is inline `code` in a sentence.
type docCode struct {
	line int
	text string
}

// docStatement is one command line of a block, with the output that a transcript shows.
type docStatement struct {
	line   int
	text   string
	output []string
}

// docPages reads all pages that have commands.
func docPages(t *testing.T) []*docPage {
	t.Helper()
	paths := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md"}
	for _, dir := range []string{"docs", "deploy"} {
		err := fs.WalkDir(os.DirFS(repository), dir, func(path string, entry fs.DirEntry, err error) error {
			if filepath.Ext(path) == ".md" && (dir == "docs" || entry.Name() == "README.md") {
				paths = append(paths, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	pages := make([]*docPage, 0, len(paths))
	for _, path := range paths {
		pages = append(pages, readDocPage(t, path))
	}
	return pages
}

func readDocPage(t *testing.T, path string) *docPage {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(repository, path))
	if err != nil {
		t.Fatal(err)
	}
	page := &docPage{path: path}
	lines := strings.Split(string(raw), "\n")
	var paragraph []string
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		text := strings.TrimLeft(line, " ")
		language, fenced := strings.CutPrefix(text, "```")
		switch {
		case fenced:
			block := docBlock{page: path, line: i + 2, language: language, before: strings.Join(paragraph, " ")}
			indent := line[:len(line)-len(text)]
			for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "```"; i++ {
				block.lines = append(block.lines, strings.TrimPrefix(lines[i], indent))
			}
			page.blocks = append(page.blocks, block)
			paragraph = nil
		case text == "":
			// The blank line before a block does not end its paragraph.
			if i+1 < len(lines) && !strings.HasPrefix(strings.TrimLeft(lines[i+1], " "), "```") {
				paragraph = nil
			}
		case text[0] == '|' || text[0] == '#':
			page.addInline(i+1, []string{text})
			paragraph = nil
		default:
			paragraph = append(paragraph, text)
			if i+1 == len(lines) || endsParagraph(lines[i+1]) {
				page.addInline(i+2-len(paragraph), paragraph)
			}
		}
	}
	return page
}

func endsParagraph(next string) bool {
	next = strings.TrimLeft(next, " ")
	return next == "" || strings.HasPrefix(next, "```") || next[0] == '|' || next[0] == '#'
}

var inlineCode = regexp.MustCompile("`([^`]+)`")

func (p *docPage) addInline(line int, paragraph []string) {
	text := strings.Join(paragraph, "\n")
	for _, at := range inlineCode.FindAllStringSubmatchIndex(text, -1) {
		p.inline = append(p.inline, docCode{
			line: line + strings.Count(text[:at[0]], "\n"),
			text: strings.ReplaceAll(text[at[2]:at[3]], "\n", " "),
		})
	}
}

var namesFile = regexp.MustCompile("`([^` ]+)`:$")

// file returns the name of the file that a block shows: the paragraph before it ends with
// `name`:
func (b *docBlock) file() string {
	if m := namesFile.FindStringSubmatch(b.before); m != nil {
		return m[1]
	}
	return ""
}

// text returns the content of the file that the block shows.
func (b *docBlock) text() string { return strings.Join(b.lines, "\n") + "\n" }

// statements returns the command lines of a block: all lines of sh, lines after a prompt in console,
// and synopses of kernosis in text.
func (b *docBlock) statements() []docStatement {
	var all []docStatement
	for i := 0; i < len(b.lines); i++ {
		line := b.lines[i]
		switch b.language {
		case "sh":
		case "console":
			text, prompt := strings.CutPrefix(line, "$ ")
			if !prompt {
				if len(all) > 0 {
					last := &all[len(all)-1]
					last.output = append(last.output, line)
				}
				continue
			}
			line = text
		case "text":
			if !strings.HasPrefix(line, "kernosis ") {
				continue
			}
		default:
			return nil
		}
		s := docStatement{line: b.line + i, text: line}
		for goesOn(s.text) && i+1 < len(b.lines) {
			i++
			s.text += "\n" + b.lines[i]
		}
		if s.text != "" {
			all = append(all, s)
		}
	}
	return all
}

var hereDocument = regexp.MustCompile(`<<'?([A-Z]+)'?`)

// goesOn reports whether a statement continues on the next line: after a backslash, a pipe, an open
// quote or in a here-document.
func goesOn(text string) bool {
	if m := hereDocument.FindStringSubmatch(text); m != nil {
		return !strings.HasSuffix(text, "\n"+m[1])
	}
	code, _, _ := strings.Cut(text, " #")
	return strings.HasSuffix(text, `\`) || strings.HasSuffix(text, " |") || strings.Count(code, "'")%2 == 1
}

// Each block names its language: sh for commands to run, console for a transcript with prompts, text
// for output.
func TestFencesOfDocs(t *testing.T) {
	languages := []string{"sh", "console", "text", "yaml", "json", "go", "dockerfile"}
	for _, page := range docPages(t) {
		for _, block := range page.blocks {
			place := fmt.Sprintf("%s:%d", block.page, block.line-1)
			if !slices.Contains(languages, block.language) {
				t.Errorf("%s: the fence has the language %q, want one of %s", place, block.language, strings.Join(languages, ", "))
			}
			prompts := 0
			for _, line := range block.lines {
				if strings.HasPrefix(line, "$ ") {
					prompts++
				}
			}
			switch {
			case block.language == "console" && (prompts == 0 || !strings.HasPrefix(block.lines[0], "$ ")):
				t.Errorf("%s: a console block begins with a prompt, \"$ \"", place)
			case block.language != "console" && prompts > 0:
				t.Errorf("%s: a block with a prompt is a console block", place)
			}
		}
	}
}
