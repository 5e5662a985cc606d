package draw

import (
	"cmp"
	"slices"
)

// sweeps is how often the layers are reordered, alternately downwards and upwards. More sweeps
// hardly improve the result.
const sweeps = 12

// uncross reorders each layer by the mean position of its items' neighbours, and keeps the order
// with the fewest crossings. Of equal orders it keeps the earliest, which is closest to the order
// in which paths are tried.
func (l *layout) uncross() {
	best, least := l.order(), l.crossings()
	for i := range sweeps {
		if least == 0 {
			break
		}
		if i%2 == 0 {
			for n := range l.layers {
				l.sortLayer(n, func(it *item) []int { return it.up })
			}
		} else {
			for n := range slices.Backward(l.layers) {
				l.sortLayer(n, func(it *item) []int { return it.down })
			}
		}
		if c := l.crossings(); c < least {
			best, least = l.order(), c
		}
	}
	l.layers = best
}

func (l *layout) order() [][]int {
	out := make([][]int, len(l.layers))
	for i := range l.layers {
		out[i] = slices.Clone(l.layers[i])
	}
	return out
}

// ranks returns the position of each item in its layer.
func (l *layout) ranks() []int {
	out := make([]int, len(l.items))
	for _, layer := range l.layers {
		for i, it := range layer {
			out[it] = i
		}
	}
	return out
}

func (l *layout) sortLayer(n int, neighbours func(*item) []int) {
	rank := l.ranks()
	mean := make(map[int]float64, len(l.layers[n]))
	for i, it := range l.layers[n] {
		mean[it] = float64(i)
		if near := neighbours(&l.items[it]); len(near) > 0 {
			sum := 0
			for _, other := range near {
				sum += rank[other]
			}
			mean[it] = float64(sum) / float64(len(near))
		}
	}
	slices.SortStableFunc(l.layers[n], func(a, b int) int { return cmp.Compare(mean[a], mean[b]) })
}

// crossings counts the pairs of edges between neighbouring layers that cross.
func (l *layout) crossings() int {
	rank, total := l.ranks(), 0
	for _, layer := range l.layers {
		var ends []int // lower ends of the edges, ordered by their upper ends
		for _, it := range layer {
			from := len(ends)
			for _, below := range l.items[it].down {
				ends = append(ends, rank[below])
			}
			slices.Sort(ends[from:])
		}
		total += inversions(ends)
	}
	return total
}

// inversions counts the pairs in the wrong order.
func inversions(s []int) (n int) {
	sorted := make([]int, 0, len(s))
	for _, v := range s {
		at, _ := slices.BinarySearch(sorted, v+1) // after those that are equal
		n += len(sorted) - at
		sorted = slices.Insert(sorted, at, v)
	}
	return n
}
