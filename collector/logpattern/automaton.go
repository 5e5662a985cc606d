package logpattern

import "fmt"

// maxTable bounds an automaton's table, in bytes. 1000 literals of maxLiteral random bytes take 3
// MiB; if the literals would take more than maxTable, only their last 8 or 4 bytes are used.
const maxTable = 16 << 20

// automaton finds which of many texts occur in a line, in one pass over it (Aho and Corasick,
// 1975), ignoring the case of ASCII letters. It is immutable.
//
// It is implemented here because no library fits: cloudflare/ahocorasick takes 4 KiB per state and
// allocates its result, BobuSumisu/aho-corasick takes 2 KiB per state,
// petar-dambovaliev/aho-corasick allocates every match, and only the last folds case. Here a state
// takes 4 bytes for each byte value in use.
type automaton struct {
	// class maps a byte to its column; 0 is the column of all bytes that are in no text.
	class [256]uint8
	width uint32
	// next has one row of columns per state: the offset of the next state's row. The states' order is
	// such that one comparison classifies a state: first those after at most one byte of a text, then
	// those after more, then those at which texts end.
	next []uint32
	deep uint32 // offset of the first row after two bytes of a text
	ends uint32 // offset of the first row at which a text ends
	// found lists the owners of those texts, from the state at ends.
	found [][]uint32
}

// newAutomaton returns the automaton for the texts of each owner. Texts are in lower case and not
// empty. The bits that scan sets are indexes of owners.
func newAutomaton(texts [][]string) (*automaton, error) {
	for longest := maxLiteral; longest >= 4; longest /= 2 {
		if t := newTrie(texts, longest); t != nil {
			return t.automaton(), nil
		}
	}
	return nil, fmt.Errorf("the patterns have too many different literals for a table of %d MiB", maxTable>>20)
}

// scan sets the bits of the owners of all texts in line, and reports whether there are any.
//
// Each step waits for the memory that the previous one reads. So scan reads both halves of the line
// at once, which takes almost half of the time.
func (a *automaton) scan(line []byte, owners bitset) (some bool) {
	next, class, ends := a.next, &a.class, a.ends
	half := len(line) / 2
	left, right := line[:half], line[half:]
	l, r := uint32(0), uint32(0) // states
	for i, c := range left {
		l, r = next[l+uint32(class[c])], next[r+uint32(class[right[i]])]
		if l >= ends || r >= ends {
			a.note(l, owners)
			a.note(r, owners)
			some = true
		}
	}
	if len(right) > half {
		if r = next[r+uint32(class[right[half]])]; r >= ends {
			a.note(r, owners)
			some = true
		}
	}
	for _, c := range right { // texts that begin in the left half
		if l = next[l+uint32(class[c])]; l < a.deep {
			break
		}
		if l >= ends {
			a.note(l, owners)
			some = true
		}
	}
	return some
}

// note sets the bits of the owners of the texts that end at a state.
func (a *automaton) note(state uint32, owners bitset) {
	if state < a.ends {
		return
	}
	for _, o := range a.found[(state-a.ends)/a.width] {
		owners.set(int(o))
	}
}

// trie is the trie of the texts, from which the automaton is built.
type trie struct {
	class [256]uint8
	width uint32
	next  []uint32   // rows of states, not offsets; 0 means none
	found [][]uint32 // owners, by state
}

// newTrie returns the trie of the last bytes of the texts, nil if it would exceed maxTable.
func newTrie(texts [][]string, longest int) *trie {
	t := &trie{width: 1}
	states := 1 // upper bound
	for _, list := range texts {
		for _, text := range list {
			states += min(len(text), longest)
			for i := max(0, len(text)-longest); i < len(text); i++ {
				// Without capital letters there are at most 230 byte values.
				if c := text[i]; t.class[c] == 0 {
					t.class[c] = uint8(t.width) //nolint:gosec // see above
					t.width++
				}
			}
		}
	}
	for c := 'A'; c <= 'Z'; c++ {
		t.class[c] = t.class[c+'a'-'A']
	}
	// Preallocate: a growing large table would be copied a dozen times.
	t.next = make([]uint32, 0, min(states*int(t.width), maxTable/4+int(t.width)))
	t.grow()
	for owner, list := range texts {
		for _, text := range list {
			state := uint32(0)
			for i := max(0, len(text)-longest); i < len(text); i++ {
				slot := state*t.width + uint32(t.class[text[i]])
				if t.next[slot] == 0 {
					t.next[slot] = uint32(len(t.found)) //nolint:gosec // below maxTable
					t.grow()
				}
				state = t.next[slot]
			}
			t.found[state] = append(t.found[state], uint32(owner)) //nolint:gosec // at most MaxPatterns
			if len(t.next)*4 > maxTable {
				return nil
			}
		}
	}
	return t
}

func (t *trie) grow() {
	t.next = append(t.next, make([]uint32, t.width)...)
	t.found = append(t.found, nil)
}

// automaton fills in the transitions for bytes that continue no text: to the state of the longest suffix
// that begins a text. It works breadth first, so that this shorter state is complete.
func (t *trie) automaton() *automaton {
	fallback := make([]uint32, len(t.found))
	queue := make([]uint32, 1, len(t.found))
	shallow := 0
	for i := 0; i < len(queue); i++ {
		state := queue[i]
		back := fallback[state]
		t.found[state] = append(t.found[state], t.found[back]...)
		for c := range t.width {
			child := t.next[state*t.width+c]
			after := t.next[back*t.width+c]
			if child == 0 {
				t.next[state*t.width+c] = after
				continue
			}
			queue = append(queue, child)
			if state != 0 {
				fallback[child] = after
			}
		}
		if i == 0 {
			shallow = len(queue)
		}
	}
	return t.order(queue, shallow)
}

// order returns the automaton with the states in the given order, breadth first, but moves states at
// which a text ends to the end. Most bytes of a line lead to the first states (after at most one byte of
// a text), so these share cache lines and pages.
func (t *trie) order(states []uint32, shallow int) *automaton {
	a := &automaton{class: t.class, width: t.width, next: make([]uint32, len(t.next))}
	place := make([]uint32, len(t.found))
	n := uint32(0)
	for _, ends := range []bool{false, true} {
		if ends {
			a.ends = n * t.width
		}
		for i, state := range states {
			owners := t.found[state]
			if (len(owners) > 0) == ends {
				place[state] = n
				n++
				if i < shallow && !ends {
					a.deep = n * t.width
				}
				if ends {
					a.found = append(a.found, owners)
				}
			}
		}
	}
	for state, at := range place {
		for c := range t.width {
			a.next[at*t.width+c] = place[t.next[uint32(state)*t.width+c]] * t.width //nolint:gosec // below maxTable
		}
	}
	return a
}
