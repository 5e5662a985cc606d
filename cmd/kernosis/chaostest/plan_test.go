package chaostest_test

import (
	"math/rand/v2"
	"slices"
	"time"
)

// step is one step of a plan.
type step struct {
	after time.Duration // the previous step
	name  string
	do    func(*world)
}

// Bounds of a plan.
const (
	planSteps = 36
	maxPause  = 400 * time.Millisecond
	maxHarm   = 5 // steps until a harm is healed
)

// act is a step without duration.
type act struct {
	name   string
	weight int
	do     func(*world, *rand.Rand)
}

// faults returns acts that the agent has to report.
func faults() []act {
	return []act{
		{"kill", 4, func(w *world, _ *rand.Rand) { w.kill() }},
		{"hiccups", 4, func(w *world, r *rand.Rand) { w.hiccups(1 + r.IntN(20)) }},
		{"fall", 2, func(w *world, _ *rand.Rand) { w.fall() }},
		{"stand up", 2, func(w *world, _ *rand.Rand) { w.standUp() }},
		{"repair", 2, func(w *world, _ *rand.Rand) { w.repairs.begin() }},
		{"taint", 1, func(w *world, _ *rand.Rand) { w.repairs.taint() }},
		{"quiet", 1, func(w *world, _ *rand.Rand) { w.quiet() }},
	}
}

// newPlan makes a plan from random numbers only, so that the same seed gives the same plan. Each part has
// at most one harm at a time, and all are healed at the end.
func newPlan(r *rand.Rand) []step {
	var plan []step
	add := func(name string, do func(*world)) {
		plan = append(plan, step{after: time.Duration(r.Int64N(int64(maxPause))), name: name, do: do})
	}
	heals := map[part]int{} // step at which to heal
	for i := range planSteps {
		for _, p := range parts {
			if at, harmed := heals[p]; harmed && at <= i {
				delete(heals, p)
				add("heal "+string(p), func(w *world) { w.heal(p) })
			}
		}
		// Each fault, crash and harm has its own random numbers, so that the plan does not depend on how many it
		// uses.
		own := rand.New(rand.NewPCG(r.Uint64(), 0))
		switch n := r.IntN(20); {
		case n < 9:
			a := pick(r, faults(), func(a act) int { return a.weight })
			add(a.name, func(w *world) { a.do(w, own); w.sum.fault(a.name) })
		case n < 14:
			a := pick(r, crashes(), func(a act) int { return a.weight })
			add(a.name, func(w *world) { a.do(w, own); w.sum.fault(a.name) })
		default:
			h := pick(r, harms(), func(h harm) int { return h.weight })
			if _, harmed := heals[h.of]; harmed {
				continue
			}
			heals[h.of] = i + 1 + r.IntN(maxHarm)
			add(h.name, func(w *world) { w.harm(h, own) })
		}
	}
	for _, p := range parts {
		if _, harmed := heals[p]; harmed {
			add("heal "+string(p), func(w *world) { w.heal(p) })
		}
	}
	return plan
}

func pick[T any](r *rand.Rand, of []T, weight func(T) int) T {
	sum := 0
	for _, one := range of {
		sum += weight(one)
	}
	n := r.IntN(sum)
	i := slices.IndexFunc(of, func(one T) bool { n -= weight(one); return n < 0 })
	return of[i]
}
