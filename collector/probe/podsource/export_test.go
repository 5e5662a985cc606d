package podsource

import "time"

// SetEvery sets how often Run asks. It is called before Run.
func (k *Kubelet) SetEvery(every time.Duration) { k.every = every }
