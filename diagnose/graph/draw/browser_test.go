package draw_test

import (
	"context"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/kernosis/kernosis/diagnose/graph/draw"
	"github.com/kernosis/kernosis/vmtest/testenv"
)

// measure is a script that reports what does not fit: text that is wider than its box, and anything
// outside of the picture.
const measure = `
const wrong = [], svg = document.querySelector("svg"), picture = svg.getBoundingClientRect();
let boxes = 0;
for (const g of svg.querySelectorAll("g g")) {
	const box = g.querySelector("rect").getBoundingClientRect();
	boxes++;
	for (const t of g.querySelectorAll("text")) {
		const b = t.getBoundingClientRect();
		if (b.left < box.left + 2 || b.right > box.right - 2 || b.top < box.top || b.bottom > box.bottom)
			wrong.push("text does not fit: " + t.textContent + " by " + Math.max(box.left - b.left, b.right - box.right));
	}
}
for (const e of svg.querySelectorAll("rect, text, path")) {
	const b = e.getBoundingClientRect();
	if (b.left < picture.left - 1 || b.right > picture.right + 1 || b.top < picture.top - 1 || b.bottom > picture.bottom + 1)
		wrong.push("outside: " + e.outerHTML);
}
document.body.innerHTML = "";
document.body.textContent = "MEASURED " + boxes + " boxes\n" + wrong.join("\n") + " END";
`

// Only a browser knows the real width of text. The layout assumes the widest font of its list.
func TestTextFitsInABrowser(t *testing.T) {
	testenv.OnlyInTestAll(t)
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium (package chromium), which measures text")
	}
	// Not t.TempDir, because processes that the browser leaves behind may still write there.
	profile, err := os.MkdirTemp("", "kernosis-browser-") //nolint:usetesting // as said
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(profile) })
	for name, d := range drawings(t) {
		page := filepath.Join(t.TempDir(), name+".html")
		text := `<!doctype html><meta charset="utf-8"><body style="margin:0">` + string(draw.SVG(d)) + "<script>" + measure + "</script>"
		if err := os.WriteFile(page, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), testenv.Within(time.Minute))
		defer cancel()
		cmd := exec.CommandContext(ctx, browser, "--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir="+profile, "--dump-dom", "file://"+page)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		found := regexp.MustCompile(`(?s)MEASURED [1-9]\d* boxes\n(.*) END`).FindStringSubmatch(string(out))
		if found == nil {
			t.Fatalf("%s: the browser says %.500s", name, out)
		}
		if wrong := strings.TrimSpace(html.UnescapeString(found[1])); wrong != "" {
			t.Errorf("%s:\n%s", name, wrong)
		}
	}
}
