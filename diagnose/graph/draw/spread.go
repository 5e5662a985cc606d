package draw

import "slices"

// rounds is how often positions are balanced, alternately downwards and upwards.
const rounds = 16

// spread sets the horizontal position of each item: as near to its neighbours above and below as
// the order of the layers and the minimum distances allow.
func (l *layout) spread() {
	for _, layer := range l.layers {
		x := 0.0
		for i, it := range layer {
			if i > 0 {
				x += l.apart(layer[i-1], it)
			}
			l.items[it].x = x
		}
	}
	for round := range rounds {
		both := round >= rounds-4 // finally, balance between above and below
		if round%2 == 0 {
			for n := range l.layers {
				l.settle(n, true, both)
			}
		} else {
			for n := range slices.Backward(l.layers) {
				l.settle(n, both, true)
			}
		}
	}
}

// apart returns the minimum distance between the centres of two adjacent items of a layer.
func (l *layout) apart(left, right int) float64 {
	gap := nodeGap
	if l.items[left].bend || l.items[right].bend {
		gap = bendGap
	}
	return l.items[left].w/2 + gap + l.items[right].w/2
}

// settle moves the items of a layer towards the mean of their neighbours, minimizing the weighted
// sum of squared deviations. This is isotonic regression of the wanted positions minus the
// distances, solved by pooling adjacent violators.
func (l *layout) settle(n int, up, down bool) {
	type pool struct {
		sum, weight float64
		items       int
	}
	var pools []pool
	layer := l.layers[n]
	offset := make([]float64, len(layer))
	for i, it := range layer {
		if i > 0 {
			offset[i] = offset[i-1] + l.apart(layer[i-1], it)
		}
		want, weight := l.wanted(it, up, down)
		pools = append(pools, pool{(want - offset[i]) * weight, weight, 1})
		for k := len(pools) - 1; k > 0 && pools[k-1].sum*pools[k].weight > pools[k].sum*pools[k-1].weight; k-- {
			pools[k-1].sum += pools[k].sum
			pools[k-1].weight += pools[k].weight
			pools[k-1].items += pools[k].items
			pools = pools[:k]
		}
	}
	i := 0
	for _, p := range pools {
		for range p.items {
			l.items[layer[i]].x = p.sum/p.weight + offset[i]
			i++
		}
	}
}

// wanted returns the best position of an item, and its weight: edges across several layers have the
// highest weight, so that they are straight.
func (l *layout) wanted(it int, up, down bool) (x, weight float64) {
	n := &l.items[it]
	add := func(others []int) {
		for _, o := range others {
			w := 1.0
			switch {
			case n.bend && l.items[o].bend:
				w = 8
			case n.bend || l.items[o].bend:
				w = 2
			}
			x += l.items[o].x * w
			weight += w
		}
	}
	if up {
		add(n.up)
	}
	if down {
		add(n.down)
	}
	if weight == 0 {
		return n.x, 0.1 // it has no neighbours there: others push it aside
	}
	return x / weight, weight
}
