package logpattern

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kernosis/kernosis/vmtest/testenv"
)

// TestAutomatonAgreesWithNaive compares it with a search for each text, over an alphabet so small
// that texts are suffixes, parts and prefixes of each other.
func TestAutomatonAgreesWithNaive(t *testing.T) {
	hits := 0
	for round := range 2000 {
		r := rand.New(rand.NewPCG(4, uint64(round))) //nolint:gosec // repeatable
		word := func(most int) string {
			b := make([]byte, 1+r.IntN(most))
			for i := range b {
				b[i] = "abcAB\xff\x00"[r.IntN(7)]
			}
			return string(b)
		}
		texts := make([][]string, r.IntN(8))
		for i := range texts {
			for range r.IntN(4) {
				texts[i] = append(texts[i], strings.ToLower(strings.ToValidUTF8(word(6), "\u00ff")))
			}
		}
		a, err := newAutomaton(texts)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			line := []byte(word(20))
			var want []int
			for i, list := range texts {
				if slices.ContainsFunc(list, func(s string) bool { return bytes.Contains(lowerASCII(line), []byte(s)) }) {
					want = append(want, i)
				}
			}
			found := newBitset(len(texts))
			some := a.scan(line, found)
			if got := list(found); !slices.Equal(got, want) || some != (len(want) > 0) {
				t.Fatalf("%q in %q: %v %v, want %v", texts, line, some, got, want)
			}
			hits += len(want)
		}
	}
	if hits < 5000 {
		t.Errorf("%d hits: too few to mean anything", hits)
	}
}

func lowerASCII(b []byte) []byte {
	b = bytes.Clone(b)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return b
}

func TestAutomatonOfEveryByte(t *testing.T) {
	var texts [][]string
	for c := range 256 {
		if c < 'A' || c > 'Z' {
			texts = append(texts, []string{string([]byte{byte(c), byte(c)})})
		}
	}
	a, err := newAutomaton(texts)
	if err != nil {
		t.Fatal(err)
	}
	for c := range 256 {
		found := newBitset(len(texts))
		a.scan([]byte{byte(c), byte(c)}, found)
		if got := list(found); len(got) != 1 || texts[got[0]][0][0] != lowerASCII([]byte{byte(c)})[0] {
			t.Errorf("byte %#x: %v", c, got)
		}
	}
}

// TestAutomatonIsBounded checks that many long literals are shortened instead of taking more
// memory, and that the maximum number of patterns results in an automaton or an error.
func TestAutomatonIsBounded(t *testing.T) {
	testenv.OnlyInTestAll(t)
	r := rand.New(rand.NewPCG(5, 6)) //nolint:gosec // repeatable
	for _, tt := range []struct {
		owners, each int
		fails        bool
	}{{1000, 1, false}, {4096, 1, false}, {4096, 16, true}} {
		texts := make([][]string, tt.owners)
		for i := range texts {
			for range tt.each {
				b := make([]byte, maxLiteral)
				for j := range b {
					b[j] = "abcdefghijklmnopqrstuvwxyz0123456789 -_:.,/()[]"[r.IntN(47)]
				}
				texts[i] = append(texts[i], string(b))
			}
		}
		a, err := newAutomaton(texts)
		if (err != nil) != tt.fails {
			t.Errorf("%d × %d: %v", tt.owners, tt.each, err)
		}
		if err != nil {
			continue
		}
		t.Logf("%d × %d: %d states, table %d KiB", tt.owners, tt.each, len(a.next)/int(a.width), len(a.next)*4>>10)
		if len(a.next)*4 > maxTable+1024 {
			t.Errorf("table of %d bytes", len(a.next)*4)
		}
		line := fmt.Appendf(nil, "x%sx", texts[7][0])
		found := newBitset(tt.owners)
		if a.scan(line, found); !found.has(7) {
			t.Error("a text is not found by its last bytes")
		}
	}
}

func list(b bitset) (all []int) {
	for i := range 64 * len(b) {
		if b.has(i) {
			all = append(all, i)
		}
	}
	return all
}
