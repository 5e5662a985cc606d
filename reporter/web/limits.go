package web

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
)

// maxAddresses is how many addresses are remembered; the least recently used are evicted first.
const maxAddresses = 4096

// Limiters holds rate limiters by name, for a bounded number of names.
type Limiters struct {
	each  rate.Limit
	burst int

	mu     sync.Mutex
	byName *simplelru.LRU[string, *rate.Limiter]
}

// NewLimiters returns Limiters for up to names names.
func NewLimiters(names int, each rate.Limit, burst int) (*Limiters, error) {
	l, err := simplelru.NewLRU[string, *rate.Limiter](names, nil)
	return &Limiters{each: each, burst: burst, byName: l}, err
}

// Of returns the rate limiter of a name.
func (l *Limiters) Of(name string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r, ok := l.byName.Get(name); ok {
		return r
	}
	r := rate.NewLimiter(l.each, l.burst)
	l.byName.Add(name, r)
	return r
}
