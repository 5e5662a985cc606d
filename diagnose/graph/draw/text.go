package draw

import (
	"bytes"
	"fmt"
	"math/big"
	"regexp"
	"strings"
	"text/tabwriter"
)

// maxTextPaths is how many paths are listed: about a screen.
const maxTextPaths = 20

// Text returns the drawing as text: the nodes with their edges, and the first paths.
func Text(d *Drawing) string {
	var b bytes.Buffer
	edges := 0
	for id := range d.Graph.Len() {
		edges += len(d.Graph.Node(id).To)
	}
	count := d.Graph.Count()
	fmt.Fprintf(&b, "%s: %s, %s, %s\n\n", label(d.Title, 80), many(big.NewInt(int64(d.Graph.Len())), "node"), many(big.NewInt(int64(edges)), "edge"), many(count, "path"))
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	for id := range d.Graph.Len() {
		mark := " "
		if d.onPath(id) {
			mark = "*"
		}
		leads := strings.Trim(fmt.Sprint(d.Graph.Node(id).To), "[]")
		if leads == "" {
			leads = "end of a path"
		} else {
			leads = "→ " + strings.ReplaceAll(leads, " ", ", ")
		}
		_, _ = fmt.Fprintf(w, "%s %d\t%s\t%s\t%s\n", mark, id, d.name(id, 63), leads, d.detail(id))
	}
	_ = w.Flush() // writing to memory can't fail
	b.WriteString("\nPaths, in the order in which they are tried:\n")
	paths := d.Graph.Paths(maxTextPaths)
	for _, p := range paths {
		b.WriteString("  ")
		for i, id := range p {
			if i > 0 {
				b.WriteString(" → ")
			}
			fmt.Fprintf(&b, "%d %s", id, d.name(id, 63))
		}
		b.WriteByte('\n')
	}
	if more := count.Sub(count, big.NewInt(int64(len(paths)))); more.Sign() > 0 {
		fmt.Fprintf(&b, "  and %s more\n", more)
	}
	return regexp.MustCompile(` +\n`).ReplaceAllString(b.String(), "\n") // the columns leave blanks
}

func many(n *big.Int, what string) string {
	if n.Cmp(big.NewInt(1)) == 0 {
		return "1 " + what
	}
	return n.String() + " " + what + "s"
}
