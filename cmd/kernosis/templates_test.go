package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/kernosis/kernosis/vmtest/agenttest"
)

// The program does not contain the executor of text/template, which calls methods by name: it would
// make the linker keep the methods of every type (docs/adr/0032-pages-without-templates.md).
func TestNoTemplatesAreLinked(t *testing.T) {
	program, err := os.ReadFile(agenttest.Program(t))
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(program, []byte("text/template.(*state).evalField")) {
		t.Error(`the program executes text/template or html/template, and is 20 MB larger for it. Find the caller: go build -tags grpcnotrace -ldflags=-dumpdep -o /dev/null ./cmd/kernosis 2>&1 | grep -F -e '-> text/template.(*Template).Execute' -e '-> html/template.(*Template).Execute'. Write HTML with gomponents, as reporter/web does, and text with fmt.`)
	}
}
